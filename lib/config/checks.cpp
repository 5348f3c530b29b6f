#include "config/checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "config/schema.h"
#include "text/jinja/template.h"
#include "text/regex.h"

namespace lorikeet::config {
namespace {

void settle_exclusion(const Exclusion& pair, Settings& settings, const std::set<std::string>& given,
                      std::vector<std::string>& problems) {
  const auto& [one, other] = pair.fields;
  const auto displace = [&](const Exclusion::Member& stays, const Exclusion::Member& goes) {
    if (given.contains(goes.name) || !given.contains(stays.name) || !in_force(stays, settings)) return;
    schema().find(goes.name)->read(settings, parse_yaml(goes.off, goes.name));
  };
  displace(one, other);
  displace(other, one);
  const bool first = in_force(one, settings), second = in_force(other, settings);
  if (!(first && second) && (first || second || !pair.needed)) return;
  problems.push_back(one.name + " and " + other.name + ": expected " + (pair.needed ? "exactly" : "at most") +
                     " one of them, got " + (first ? "both" : "neither"));
}

void check_batch(const BatchSettings& batch, std::vector<std::string>& problems) {
  if (batch.global && batch.micro && *batch.micro > *batch.global) {
    problems.push_back("batch.micro: expected at most batch.global (" + std::to_string(*batch.global) +
                       "), got " + std::to_string(*batch.micro));
  }
}

void check_schedule(const Settings& settings, std::vector<std::string>& problems) {
  const SchedulerSettings& schedule = settings.lr_scheduler;
  if (schedule.min_lr > settings.optimizer.lr)
    problems.emplace_back("lr_scheduler.min_lr: expected at most optimizer.lr, got a larger value");
  if (schedule.min_lr > 0 && schedule.name == SchedulerName::kConstant)
    problems.emplace_back("lr_scheduler.min_lr: has no effect on a constant rate; leave it out");
  if (schedule.warmup_steps && settings.training.max_steps &&
      *schedule.warmup_steps >= *settings.training.max_steps) {
    problems.push_back("lr_scheduler.warmup_steps: expected fewer than training.max_steps (" +
                       std::to_string(*settings.training.max_steps) + "), got " +
                       std::to_string(*schedule.warmup_steps));
  }
}

// What a recorded micro-step can't follow: numbers that the host changes from step to step, and memory that
// it moves.
void check_cuda_graphs(const Settings& settings, std::vector<std::string>& problems) {
  if (!settings.training.cuda_graphs) return;
  const auto refuse = [&](const std::string& with, const std::string& why) {
    problems.push_back("training.cuda_graphs: expected to be false with " + with + ", " + why);
  };
  if (settings.device.kind == DeviceSetting::Kind::kCpu) refuse("device=cpu", "which has no graphs");
  if (settings.lora.dropout > 0) refuse("lora.dropout", "whose masks differ from step to step");
  if (settings.lora.use_dora) refuse("lora.use_dora", "whose norms are made anew once a step");
  if (!settings.training.offload || settings.training.offload->any())
    refuse("training.offload", "which moves memory within a step; expected training.offload=none");
}

void check_validation(const ValidationSettings& validation, std::vector<std::string>& problems) {
  if (validation.enabled()) return;
  if (validation.patience)
    problems.emplace_back("data.validation.patience: needs data.validation.path or data.validation.fraction");
  if (validation.every_steps)
    problems.emplace_back(
        "data.validation.every_steps: needs data.validation.path or data.validation.fraction");
}

void check_source(const SourceSettings& source, const DataSettings& data,
                  std::vector<std::string>& problems) {
  const WhereSettings& where = source.where;
  if (where.max_tokens && *where.max_tokens >= data.max_seq_len) {
    problems.push_back("data.train.where.max_tokens: expected less than data.max_seq_len (" +
                       std::to_string(data.max_seq_len) + "), got " + std::to_string(*where.max_tokens) +
                       "; to leave out what is longer than that set data.overlong to drop");
  }
  if (where.min_tokens && *where.min_tokens > where.max_tokens.value_or(data.max_seq_len)) {
    problems.push_back("data.train.where.min_tokens: expected at most max_tokens and data.max_seq_len, got " +
                       std::to_string(*where.min_tokens));
  }
  if (source.completion && !source.prompt && !source.preset)
    problems.emplace_back("data.train.completion: needs data.train.prompt");
  if (source.prompt && source.format != DataFormat::kAuto && source.format != DataFormat::kInstruct)
    problems.emplace_back(
        "data.train.prompt: makes rows of the format instruct, leave data.train.format out");
  if (source.preset && (source.prompt || source.completion || source.format != DataFormat::kAuto))
    problems.emplace_back("data.train.preset: says what format and prompt are, leave those out");
}

void check_sources(const DataSettings& data, std::vector<std::string>& problems) {
  for (const SourceSettings& source : data.train.sources) check_source(source, data, problems);
  check_source(data.train, data, problems);
  if (data.train.weight)
    problems.emplace_back("data.train.weight: belongs to the entries of data.train.sources");
  if (data.validation.split && !data.validation.path)
    problems.emplace_back("data.validation.split: needs data.validation.path");
  const TrainDataSettings& train = data.train;
  const bool mixes =
      train.mix_by != MixBy::kExamples || train.stopping_strategy != StoppingStrategy::kFirstExhausted;
  const bool has_weights =
      std::any_of(train.sources.begin(), train.sources.end(),
                  [](const SourceSettings& source) { return source.weight.has_value(); });
  if (mixes && !train.sources.empty() && !has_weights) {
    problems.emplace_back(
        "data.train.mix_by and data.train.stopping_strategy: have no effect without a weight in an entry of "
        "data.train.sources");
  }
  auto own = static_cast<const SourceSettings&>(train);
  own.path = SourceSettings{}.path;
  if (!data.train.sources.empty() && own != SourceSettings{}) {
    problems.emplace_back(
        "data.train: with several sources expected format, columns, limit and the like in each entry of "
        "sources, got one beside them");
  }
}

void settle_train_on(DataSettings& data, const std::set<std::string>& given,
                     std::vector<std::string>& problems) {
  if (!data.train_on_prompt) return;
  const TrainOn old = *data.train_on_prompt ? TrainOn::kAll : TrainOn::kRoles;
  if (given.contains("data.train_on") && data.train_on != old) {
    problems.emplace_back(
        "data.train_on and data.train_on_prompt: contradict each other; leave out train_on_prompt, the old "
        "name");
  }
  data.train_on = old;
  data.train_on_prompt.reset();
}

void check_date(const DataSettings& data, std::vector<std::string>& problems) {
  try {
    text::jinja::require_date(data.template_date);
  } catch (const Error&) {
    problems.push_back("data.template_date: expected a day such as 2024-07-26, got '" +
                       escape_control(data.template_date) + "'");
  }
}

void check_lora(const LoraSettings& lora, std::vector<std::string>& problems) {
  if (lora.target_modules.size() > 1) {
    for (const std::string& target : lora.target_modules) {
      if (target == "all-linear")
        problems.emplace_back("lora.target_modules: 'all-linear' names all of them; leave out the others");
    }
  }
  for (const auto& [setting, names] : {std::pair{"lora.target_modules", &lora.target_modules},
                                       std::pair{"lora.exclude_modules", &lora.exclude_modules}}) {
    for (const std::string& name : *names) {
      if (names->size() > 1 && text::has_regex_syntax(name))
        problems.push_back(std::string(setting) + ": '" + escape_control(name) +
                           "' is a regular expression, which stands alone: join several as 'one|other'");
    }
  }
  if (lora.target_modules.empty() && lora.target_parameters.empty())
    problems.emplace_back("lora.target_modules: expected at least one name, got none");
  for (const auto& [setting, set] :
       {std::pair{"lora.dropout above 0", lora.dropout > 0}, std::pair{"lora.use_dora=true", lora.use_dora},
        std::pair{"a lora.init that starts from the base", lora.starts_from_base()}}) {
    if (set && !lora.target_parameters.empty())
      problems.push_back("lora.target_parameters: doesn't go with " + std::string(setting) +
                         ", in PEFT neither; leave out one of the two");
  }
  // A folder in the working folder may be called anything, but what is nearly a keyword is a slip.
  if (lora.starts_from_folder() && lora.init.find('/') == std::string::npos) {
    if (const auto meant = nearest(lora.init, {"kaiming", "gaussian", "pissa", "pissa_niter_4", "olora"})) {
      problems.push_back(
          "lora.init: expected kaiming, gaussian, pissa, pissa_niter_N, olora or an adapter's folder, got '" +
          escape_control(lora.init) + "' (did you mean '" + *meant + "'?); write a folder as './" +
          escape_control(lora.init) + "'");
    }
  }
}

}  // namespace

std::optional<std::int64_t> LoraSettings::pissa_iterations() const {
  static constexpr std::string_view kPrefix = "pissa_niter_";
  if (!init.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = std::string_view(init).substr(kPrefix.size());
  if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return std::stoll(std::string(digits));
}

bool in_force(const Exclusion::Member& member, const Settings& settings) {
  return schema().find(member.name)->write(settings) != member.off;
}

void settle(Settings& settings, const std::set<std::string>& given, std::vector<std::string>& problems) {
  for (const Exclusion& pair : schema().exclusions()) settle_exclusion(pair, settings, given, problems);
  check_batch(settings.batch, problems);
  check_schedule(settings, problems);
  check_cuda_graphs(settings, problems);
  check_validation(settings.data.validation, problems);
  check_sources(settings.data, problems);
  settle_train_on(settings.data, given, problems);
  check_date(settings.data, problems);
  check_lora(settings.lora, problems);
}

}  // namespace lorikeet::config
