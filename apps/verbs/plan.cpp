#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "apps/config_files.h"
#include "apps/hub_paths.h"
#include "apps/published_models.h"
#include "apps/table.h"
#include "apps/verbs/between.h"
#include "apps/verbs/verbs.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/strings.h"
#include "config/config.h"
#include "recipes/plan_json.h"
#include "recipes/plan_run.h"

namespace lorikeet::apps {
namespace {

using Row = std::vector<std::string>;

constexpr int kMostDevices = 64;

std::string bytes(std::int64_t count) { return format_bytes(static_cast<std::uint64_t>(count)); }

std::string rate(double value) { return format_number(value < 100 ? "%.1f" : "%.0f", value); }

// As a shell takes it for one word.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Of each number of devices, strategy and way to save memory, the best micro-batch that fits,
// else the smallest.
std::vector<const plan::Option*> shown(const recipes::RunPlan& plan) {
  using Key = std::tuple<int, int, config::ActivationCheckpointing, bool, bool>;
  const auto key_of = [](const plan::Option& option) {
    const plan::Choice& c = option.choice;
    return Key{c.devices, c.degree, c.saving.checkpointing, c.saving.offload.activations,
               c.saving.offload.weights};
  };
  std::map<Key, const plan::Option*> chosen;
  for (const plan::Option& option : plan.options) {
    const Key key = key_of(option);
    if (chosen.contains(key)) continue;
    const plan::Option* best = plan::fastest(plan.options, plan.usual_micro_tokens,
                                             [&](const plan::Option& other) { return key_of(other) == key; });
    chosen[key] = best != nullptr ? best : &option;
  }
  std::vector<const plan::Option*> options;
  options.reserve(chosen.size());
  for (const auto& [key, option] : chosen) options.push_back(option);
  return options;
}

void print_options(const recipes::RunPlan& plan) {
  const bool priced = plan.device.machine.price_per_hour.has_value();
  std::vector<Row> rows{{"", "devices", "strategy", "checkpointing", "offload", "micro tokens",
                         "memory a device", "fits", "s a step", "waits", "tokens/s"}};
  if (priced) rows[0].emplace_back("price of 1M tokens");
  for (const plan::Option* option : shown(plan)) {
    const plan::Choice& c = option->choice;
    const bool best = option == plan.decision.best;
    const plan::Option& row = *option;
    const double waits = row.time.waited() / row.time.total();
    rows.push_back({best ? "*" : "", std::to_string(c.devices), c.strategy(),
                    std::string(name_of(c.saving.checkpointing)), std::string(name_of(c.saving.offload)),
                    std::to_string(row.choice.micro_tokens), bytes(row.memory.total()),
                    row.fits() ? "yes" : "no", format_number("%.3g", row.time.total()),
                    format_number("%.0f%%", 100 * waits), rate(row.tokens_per_second)});
    if (priced) rows.back().push_back(format_number("%.3g", *row.cost_per_million));
  }
  std::cout << "\nWays to run it (* the best; of each the micro-batch that is fastest, or the smallest where "
               "none fits; "
            << bytes(plan.options.front().available) << " on one device)\n";
  std::cout << text_table(rows, rows.front().size(), 2);
}

void print_memory(const recipes::RunPlan& plan) {
  const plan::Option& option = plan.decision.best != nullptr ? *plan.decision.best : plan.options.front();
  std::cout << "\nMemory of a device at a step's peak, " << option.choice.strategy() << " on "
            << option.choice.devices << ", micro-batches of " << option.choice.micro_tokens << " tokens\n";
  std::vector<Row> rows;
  for (const auto& [part, size] : option.memory.rows()) {
    rows.push_back({part, bytes(size)});
    if (part == "activations")
      rows.back()[1] += " (a layer keeps " + bytes(option.memory.activations_per_layer) + ")";
  }
  rows.push_back({"total", bytes(option.memory.total()) + " of " + bytes(option.available)});
  if (const std::int64_t host = option.memory.host_total(); host > 0) {
    const std::string of = option.host_available > 0 ? " of " + bytes(option.host_available) : "";
    rows.push_back({"host's memory", bytes(host) + of});
  }
  std::cout << text_table(rows, rows.front().size(), 2);
}

void print_decision(const recipes::RunPlan& plan) {
  std::cout << "\n";
  int index = 0;
  for (const plan::Question& asked : plan.decision.questions) {
    std::cout << ++index << ". " << asked.question << " " << (asked.answer ? "Yes" : "No") << ": "
              << asked.because << ".\n";
  }
  std::vector<std::string> words;
  words.reserve(plan.command.size());
  for (const std::string& word : plan.command) words.push_back(shell_word(word));
  std::cout << "\nSo: " << plan.decision.verdict << ".\n";
  if (!plan.command.empty()) std::cout << "\n  " << escape_control(join(words, " ")) << "\n";
}

void print(const recipes::RunPlan& plan) {
  const recipes::DataFacts& data = plan.data;
  std::cout << "Device: " << escape_control(plan.device.machine.device) << "\n";
  for (const std::string& source : plan.device.sources) std::cout << "  " << source << "\n";
  std::cout << "Model: " << plan.model << "\n"
            << (data.assumed.empty() ? "Data: " : "Data, assumed: ") << counted(data.examples, "row") << ", "
            << counted(data.tokens, "token") << " (" << data.label_tokens << " trained on); lengths";
  for (const auto& [percent, tokens] : data.percentiles)
    std::cout << " " << percent << "%: " << tokens << ",";
  std::cout << " longest " << data.longest << "; " << counted(data.steps, "step") << " of "
            << static_cast<std::int64_t>(std::round(data.tokens_per_step)) << " tokens\n";
  if (!data.assumed.empty()) std::cout << "  " << escape_control(data.assumed) << "\n";
  print_options(plan);
  print_memory(plan);
  print_decision(plan);
}

struct Options {
  recipes::PlanRequest request;
  bool json = false;
};

int run(Options& options) {
  recipes::PlanRequest& request = options.request;
  if (request.devices && request.most_devices)
    throw Error("[plan] expected --devices or --max-devices, got both");
  request.settings = config::load_settings(find_config(request.config), request.overrides);
  use_cached_paths(request.settings);
  request.published = published_config(request.settings.model.path);
  const auto plan = recipes::plan_run(request);
  if (options.json) {
    std::cout << recipes::plan_json(*plan).dump(2) << "\n";
  } else {
    print(*plan);
  }
  return 0;
}

}  // namespace

Verb add_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  recipes::PlanRequest& request = o->request;
  CLI::App* command = app.add_subcommand(
      "plan",
      "Says before anything is spent whether a run fits, how fast and how dear it would "
      "be on one device and on "
      "several, and what to start. Reads no weights; of a published model, and of data, nothing "
      "need be there.");
  command
      ->add_option("config", request.config, "the run's settings, a YAML file or a ready-made config's name")
      ->required();
  command->add_option("overrides", request.overrides,
                      "a.b=value sets a setting, ~a.b drops it back to its default");
  command->add_option("--devices", request.devices, "plan for so many devices, and for one")
      ->check(between(1, kMostDevices));
  command
      ->add_option("--max-devices", request.most_devices,
                   "plan for one device to so many; else those of this machine, or one of a named card")
      ->check(between(1, kMostDevices));
  command->add_option("--gpu", request.device.gpu,
                      "plan for this card instead of this machine's, e.g. 'RTX 3090'");
  const auto positive = between(1e-6, 1e18);
  command->add_option("--device-memory", request.device.memory_gib, "GiB that a run may take on a device")
      ->check(between(1e-3, 1e6));
  command
      ->add_option("--host-memory", request.device.host_memory_gib,
                   "GiB of the host's memory that a run may take for what is offloaded; else what is free "
                   "here, and 64 with a card that isn't here")
      ->check(between(1e-3, 1e6));
  command
      ->add_option("--flops-per-second", request.device.flops_per_second,
                   "floating-point operations a second that a device sustains in training, e.g. 35e12")
      ->check(positive);
  command
      ->add_option("--bandwidth", request.device.bandwidth_gb,
                   "GB/s that a ring over the devices reaches (NCCL's busbw)")
      ->check(positive);
  command->add_option("--price", request.device.price_per_hour, "of one device an hour")->check(positive);
  command->add_flag("--json", o->json, "everything as JSON (docs/plan.md)");
  return {command, [o] { return run(*o); }};
}

}  // namespace lorikeet::apps
