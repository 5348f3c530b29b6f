#include "config/checks.h"

#include "base/strings.h"

namespace lorikeet::config {
namespace {

void settle_batch(BatchSettings& batch, const std::set<std::string>& given,
                  std::vector<std::string>& problems) {
  if (batch.global_tokens && !given.contains("batch.global")) batch.global.reset();
  if (batch.global.has_value() == batch.global_tokens.has_value()) {
    problems.emplace_back(
        std::string("batch.global and batch.global_tokens: expected exactly one of them, got ") +
        (batch.global ? "both" : "neither"));
  }
  if (batch.global && batch.micro && *batch.micro > *batch.global) {
    problems.push_back("batch.micro: expected at most batch.global (" + std::to_string(*batch.global) +
                       "), got " + std::to_string(*batch.micro));
  }
}

void settle_schedule(Settings& settings, const std::set<std::string>& given,
                     std::vector<std::string>& problems) {
  SchedulerSettings& schedule = settings.lr_scheduler;
  if (schedule.warmup_steps && !given.contains("lr_scheduler.warmup_ratio")) schedule.warmup_ratio.reset();
  if (schedule.warmup_ratio && schedule.warmup_steps) {
    problems.emplace_back(
        "lr_scheduler.warmup_ratio and lr_scheduler.warmup_steps: expected at most one of them, got both");
  }
  if (schedule.min_lr > settings.optimizer.lr)
    problems.emplace_back("lr_scheduler.min_lr: expected at most optimizer.lr, got a larger value");
  if (schedule.warmup_steps && settings.training.max_steps &&
      *schedule.warmup_steps >= *settings.training.max_steps) {
    problems.push_back("lr_scheduler.warmup_steps: expected fewer than training.max_steps (" +
                       std::to_string(*settings.training.max_steps) + "), got " +
                       std::to_string(*schedule.warmup_steps));
  }
}

void check_validation(const ValidationSettings& validation, std::vector<std::string>& problems) {
  if (validation.path && validation.fraction > 0) {
    problems.emplace_back(
        "data.validation.path and data.validation.fraction: expected at most one of them, got both");
  }
  if (validation.enabled()) return;
  if (validation.patience)
    problems.emplace_back("data.validation.patience: needs data.validation.path or data.validation.fraction");
  if (validation.every_steps)
    problems.emplace_back(
        "data.validation.every_steps: needs data.validation.path or data.validation.fraction");
}

void check_lora(const LoraSettings& lora, std::vector<std::string>& problems) {
  if (lora.target_modules.size() > 1) {
    for (const std::string& target : lora.target_modules) {
      if (target == "all-linear")
        problems.emplace_back("lora.target_modules: 'all-linear' names all of them; leave out the others");
    }
  }
  // A folder in the working folder may be called anything, but what is nearly a keyword is a slip.
  if (lora.starts_from_folder() && lora.init.find('/') == std::string::npos) {
    if (const auto meant = nearest(lora.init, {"kaiming", "gaussian"})) {
      problems.push_back("lora.init: expected kaiming, gaussian or an adapter's folder, got '" +
                         escape_control(lora.init) + "' (did you mean '" + *meant +
                         "'?); write a folder as './" + escape_control(lora.init) + "'");
    }
  }
}

}  // namespace

void settle(Settings& settings, const std::set<std::string>& given, std::vector<std::string>& problems) {
  settle_batch(settings.batch, given, problems);
  settle_schedule(settings, given, problems);
  check_validation(settings.data.validation, problems);
  check_lora(settings.lora, problems);
}

}  // namespace lorikeet::config
