#pragma once

#include <cstdint>

#include "config/settings.h"

namespace lorikeet::train {

/// Learning-rate schedules as Hugging Face's `get_scheduler` computes them: a factor for each optimizer step
/// s = 0..T-1. Warm-up rises linearly from 0 at s = 0; cosine and linear would reach `min_lr` at s = T.
struct Schedule {
  config::SchedulerName kind = config::SchedulerName::kCosine;
  double lr = 0;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;

  /// Learning rate of step `step`.
  double at(std::int64_t step) const;
};

/// The schedule of the config's `lr_scheduler:` section; a warm-up ratio is of the steps, rounded up.
/// Throws Error when warm-up is not shorter than the run, or min_lr is above lr.
Schedule make_schedule(const config::SchedulerSettings& settings, double lr, std::int64_t total_steps);

}  // namespace lorikeet::train
