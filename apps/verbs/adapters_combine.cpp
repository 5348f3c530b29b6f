#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "apps/table.h"
#include "apps/verbs/adapters.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "peft/adapter_arithmetic.h"
#include "recipes/adapter_output.h"
#include "recipes/adapter_tokens.h"

namespace lorikeet::apps {
namespace {

constexpr std::int64_t kMostRank = 65536;

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  std::vector<double> weights;
  double factor = 1;
  std::optional<std::int64_t> rank;
  std::optional<double> keep;
  bool json = false;
};

struct Result {
  peft::AdapterContents adapter;
  std::vector<peft::RankLoss> losses;  // where ranks were lowered
  std::vector<peft::AbsentModule> absent;
  std::optional<std::int64_t> rank = {};  // of all modules, where the verb makes it one
};

Json report_json(const Options& o, const Result& result) {
  Json json;
  json.set("output", o.output);
  json.set("modules", static_cast<std::int64_t>(result.adapter.modules.size()));
  Json::Array absent, losses;
  for (const peft::AbsentModule& one : result.absent) {
    Json::Array lacking;
    for (const std::size_t i : one.lacking) lacking.emplace_back(o.inputs[i]);
    absent.push_back(Json().set("name", one.name).set("absent_in", std::move(lacking)));
  }
  json.set("saved", static_cast<std::int64_t>(result.adapter.saved.size()));
  if (result.rank) json.set("rank", *result.rank);
  if (o.inputs.size() > 1) json.set("absent_modules", std::move(absent));
  if (result.losses.empty()) return json;
  for (const peft::RankLoss& loss : result.losses) {
    losses.push_back(Json()
                         .set("name", loss.module)
                         .set("rank_before", loss.rank_before)
                         .set("rank_after", loss.rank_after)
                         .set("norm", loss.norm)
                         .set("lost_share", loss.lost_share()));
  }
  json.set("lost_share", peft::total_loss(result.losses).lost_share());
  json.set("losses", std::move(losses));
  return json;
}

std::string losses_text(const std::vector<peft::RankLoss>& losses) {
  std::vector<std::vector<std::string>> rows = {{"module", "rank", "to", "|dW|", "lost"}};
  const auto add = [&](const peft::RankLoss& loss) {
    rows.push_back({loss.module, std::to_string(loss.rank_before), std::to_string(loss.rank_after),
                    format_number("%.4g", loss.norm), format_number("%.3g%%", 100 * loss.lost_share())});
  };
  for (const peft::RankLoss& loss : losses) add(loss);
  add(peft::total_loss(losses));
  return text_table(rows);
}

void warn_of_absent(const Options& o, const std::vector<peft::AbsentModule>& absent) {
  for (std::size_t i = 0; i < o.inputs.size(); ++i) {
    std::vector<std::string> names;
    for (const peft::AbsentModule& one : absent) {
      if (std::find(one.lacking.begin(), one.lacking.end(), i) != one.lacking.end())
        names.push_back(one.name);
    }
    if (names.empty()) continue;
    log_warning("'" + o.inputs[i] + "' lacks " + counted(names.size(), "module") +
                " of the others, counted as zero there: " + join_some(names, 10));
  }
}

int write(const Options& o, const Result& result) {
  recipes::write_adapter(result.adapter, {o.inputs.begin(), o.inputs.end()}, o.output);
  if (o.json) {
    std::cout << report_json(o, result).dump(2) << "\n";
  } else {
    if (!result.losses.empty()) std::cout << escape_control(losses_text(result.losses)) << "\n";
    const std::size_t saved = result.adapter.saved.size();
    std::cout << escape_control(
                     "wrote " + counted(result.adapter.modules.size(), "module") +
                     (result.rank ? " of rank " + std::to_string(*result.rank) : "") +
                     (saved > 0 ? " and " + counted(saved, "copy", "copies") + " of modules_to_save" : "") +
                     " to " + o.output)
              << "\n";
  }
  return 0;
}

// Trained ones of the embedding or the head.
bool has_rows_of_tokens(const peft::AdapterContents& adapter) {
  return !adapter.saved.empty() || std::any_of(adapter.modules.begin(), adapter.modules.end(),
                                               [](const auto& module) { return module.second.is_embedding; });
}

int average(const Options& o) {
  recipes::require_new_folder(o.output);
  std::vector<peft::AdapterContents> adapters;
  for (const std::string& input : o.inputs) {
    adapters.push_back(peft::read_adapter_contents(input));
    if (adapters.back().base_model != adapters[0].base_model)
      log_warning("'" + input + "' was trained on '" + adapters.back().base_model + "', '" + o.inputs[0] +
                  "' on '" + adapters[0].base_model + "': an average is of use where both are one model");
    if (has_rows_of_tokens(adapters.back())) recipes::require_same_tokens(input, o.inputs[0]);
  }
  std::vector<double> weights = o.weights;
  if (weights.empty()) weights.assign(adapters.size(), 1 / static_cast<double>(adapters.size()));
  Result result{.adapter = peft::weighted_sum(adapters, weights),
                .losses = {},
                .absent = peft::absent_modules(adapters)};
  if (o.rank) {
    peft::Shrunk shrunk = peft::shrunk(result.adapter, o.rank, std::nullopt);
    result.adapter = std::move(shrunk.adapter);
    result.losses = std::move(shrunk.modules);
  }
  warn_of_absent(o, result.absent);
  return write(o, result);
}

int scale(const Options& o) {
  recipes::require_new_folder(o.output);
  return write(o, {.adapter = peft::scaled(peft::read_adapter_contents(o.inputs[0]), o.factor),
                   .losses = {},
                   .absent = {}});
}

int shrink(const Options& o) {
  recipes::require_new_folder(o.output);
  peft::Shrunk shrunk = peft::shrunk(peft::read_adapter_contents(o.inputs[0]), o.rank, o.keep);
  return write(o, {.adapter = std::move(shrunk.adapter), .losses = std::move(shrunk.modules), .absent = {}});
}

int flatten(const Options& o) {
  recipes::require_new_folder(o.output);
  Result result{.adapter = peft::flattened(peft::read_adapter_contents(o.inputs[0]), o.rank),
                .losses = {},
                .absent = {}};
  result.rank = result.adapter.modules.begin()->second.update.rank();
  return write(o, result);
}

void add_output(CLI::App* command, const std::shared_ptr<Options>& o) {
  command->add_option("--output", o->output, "a new or empty folder")->required()->transform(home_path());
  command->add_flag("--json", o->json, "the report as JSON");
}

void add_input(CLI::App* command, const std::shared_ptr<Options>& o) {
  o->inputs.resize(1);
  command->add_option("adapter", o->inputs[0], "a PEFT adapter's folder")->required()->transform(home_path());
}

}  // namespace

Verb add_adapters_average(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      adapters.add_subcommand("average",
                              "Writes the weighted sum of adapters, exactly: ranks add up, --rank brings "
                              "them back. Alphas, ranks and "
                              "targets may differ; a module that one adapter lacks counts as zero there.");
  command->add_option("adapters", o->inputs, "PEFT adapters' folders")
      ->required()
      ->expected(2, 1024)
      ->transform(home_path());
  command
      ->add_option(
          "--weights", o->weights,
          "a factor for each, 0.5,0.5 (as --weights=-1,2 where the first is negative); they need not "
          "add up to 1. Equal parts of 1 by default")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--rank", o->rank, "lowers the rank of each module to at most this, by SVD")
      ->check(between(std::int64_t{1}, kMostRank));
  add_output(command, o);
  return {command, [o] { return average(*o); }};
}

Verb add_adapters_scale(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "scale", "Writes an adapter times a factor, which goes into its alphas, a minus into B.");
  add_input(command, o);
  command->add_option("factor", o->factor, "not 0; a negative one takes away what the adapter adds")
      ->required();
  add_output(command, o);
  return {command, [o] { return scale(*o); }};
}

Verb add_adapters_shrink(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "shrink", "Writes an adapter of lower rank, the nearest by SVD, and reports what each module loses.");
  add_input(command, o);
  CLI::Option* rank = command->add_option("--rank", o->rank, "at most this rank for each module")
                          ->check(between(std::int64_t{1}, kMostRank));
  command
      ->add_option("--keep", o->keep,
                   "for each module the least rank that holds this share of its squared Frobenius norm: with "
                   "0.99 at most a tenth of the norm is lost")
      ->excludes(rank);
  add_output(command, o);
  return {command, [o] {
            if (!o->rank && !o->keep) throw Error("[adapters] expected --rank or --keep, got neither");
            return shrink(*o);
          }};
}

Verb add_adapters_flatten(CLI::App& adapters) {
  auto o = std::make_shared<Options>();
  CLI::App* command = adapters.add_subcommand(
      "flatten",
      "Writes an equal adapter with one rank and one alpha for all modules, without rsLoRA: what vLLM and "
      "llama.cpp read right. Lower ranks are filled up with zeros, other scales go into B.");
  add_input(command, o);
  command
      ->add_option("--rank", o->rank,
                   "the rank of all modules, at least the largest of them, which is the default")
      ->check(between(std::int64_t{1}, kMostRank));
  add_output(command, o);
  return {command, [o] { return flatten(*o); }};
}

}  // namespace lorikeet::apps
