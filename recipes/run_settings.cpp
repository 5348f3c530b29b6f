#include "recipes/run_settings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/strings.h"
#include "config/config.h"
#include "text/chat_template.h"

namespace lorikeet::recipes {
namespace {

using config::Settings;

constexpr std::array<std::string_view, 3> kFingerprintedPaths{"model.path", "data.train.path",
                                                              "data.validation.path"};
constexpr std::array<std::string_view, 2> kLengths{"training.epochs", "training.max_steps"};

// They change in which order a step's sums are made, not what is summed.
constexpr std::array<std::string_view, 3> kGroupings{"batch.micro", "batch.micro_tokens", "data.packing"};

bool contains(const auto& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool same_place(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

bool same_but_for_paths(std::vector<config::SourceSettings> there, std::vector<config::SourceSettings> now) {
  for (auto* sources : {&there, &now})
    for (config::SourceSettings& source : *sources) source.path.clear();
  return there == now;
}

// A Jinja file or a tokenizer's folder, rather than a name.
bool is_template_path(const std::string& setting) {
  const auto& builtin = text::builtin_chat_templates();
  return setting != "auto" && std::none_of(builtin.begin(), builtin.end(),
                                           [&](const auto& known) { return known.name == setting; });
}

// True for a difference between paths alone, of which what lies there is compared otherwise, or is the same.
bool only_paths_differ(const std::string& name, const Settings& there, const Settings& now,
                       bool start_compared) {
  if (contains(kFingerprintedPaths, name)) return true;
  if (name == "data.train.sources")
    return same_but_for_paths(there.data.train.sources, now.data.train.sources);
  if (name == "lora.init")
    return there.lora.starts_from_folder() && now.lora.starts_from_folder() &&
           (start_compared || same_place(there.lora.init, now.lora.init));
  return name == "data.chat_template" && is_template_path(there.data.chat_template) &&
         is_template_path(now.data.chat_template);
}

bool is_longer(const config::TrainingSettings& there, const config::TrainingSettings& now,
               const RunSteps& steps) {
  if (steps.there) return steps.now >= *steps.there;
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  return now.epochs >= there.epochs && now.max_steps.value_or(kNoLimit) >= there.max_steps.value_or(kNoLimit);
}

// "" where the first steps' learning rates don't depend on how many follow.
std::string why_rates_would_change(const config::SchedulerSettings& scheduler) {
  if (scheduler.name != config::SchedulerName::kConstant)
    return "its learning rate falls towards the end that it had (only lr_scheduler.name=constant has none)";
  if (!scheduler.warmup_steps && scheduler.warmup_ratio.value_or(0) > 0)
    return "its warm-up is a part of all its steps (lr_scheduler.warmup_steps would be a number of them)";
  return "";
}

// "" where a longer run, too, would have validated at the end of the run there: a validation beyond its plan
// may be its best, or count against its patience.
std::string why_validations_would_change(const Settings& there, const RunSteps& steps) {
  const config::ValidationSettings& validation = there.data.validation;
  if (!validation.path && validation.fraction == 0) return "";
  if (steps.there && !steps.there_ended) return "";  // so far it validated where a longer run does
  const std::optional<std::int64_t> most = there.training.max_steps;
  const std::optional<std::int64_t> end = steps.there ? steps.there : most;
  const bool ends_with_an_epoch = !most || (end && *end < *most);
  if (validation.every_steps ? end && *end % *validation.every_steps == 0 : ends_with_an_epoch) return "";
  return "it was validated at its end, where a longer run isn't (data.validation.every_steps)";
}

}  // namespace

SettingsComparison compare_run_settings(const std::string& there, const std::string& now,
                                        const RunSteps& steps, bool start_compared) {
  const Settings older = config::parse_settings(there, "the run there");
  const Settings newer = config::parse_settings(now, "this run");
  std::vector<std::string> lines, regrouped;
  bool only_lengths = true;
  for (const auto& d : config::differences(older, newer, config::FingerprintScope::kNumbers)) {
    if (only_paths_differ(d.name, older, newer, start_compared)) continue;
    const std::string line = d.name + ": " + d.old_value + " there, " + d.new_value + " now";
    if (contains(kGroupings, d.name)) {
      regrouped.push_back(line);
      continue;
    }
    only_lengths = only_lengths && contains(kLengths, d.name);
    lines.push_back(line);
  }
  SettingsComparison result{.regrouped = join(regrouped, "; ")};
  // With as many steps in all they are the same ones, whichever setting gives their number.
  if (lines.empty() || (only_lengths && steps.there == steps.now)) return result;
  result.verdict = SettingsVerdict::kOther;
  result.difference = join(lines, "; ");
  if (!only_lengths || !is_longer(older.training, newer.training, steps)) return result;
  std::string reason = why_rates_would_change(newer.lr_scheduler);
  if (reason.empty()) reason = why_validations_would_change(older, steps);
  if (reason.empty()) {
    result.verdict = SettingsVerdict::kLonger;
  } else {
    result.advice = "that run can't be made longer, since " + reason +
                    "; to train on from its adapter, choose another checkpoint.output_dir and set lora.init "
                    "to this folder";
  }
  return result;
}

}  // namespace lorikeet::recipes
