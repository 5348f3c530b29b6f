#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/counted.h"
#include "base/error.h"

namespace lorikeet::train {

double Schedule::at(std::int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == config::SchedulerName::kConstant) return lr;
  const double progress = static_cast<double>(step - warmup_steps) /
                          static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double falling = kind == config::SchedulerName::kLinear
                             ? std::max(0.0, 1.0 - progress)
                             : 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress)));
  return min_lr + (lr - min_lr) * falling;
}

Schedule make_schedule(const config::SchedulerSettings& settings, double lr, std::int64_t total_steps) {
  Schedule s{.kind = settings.name, .lr = lr, .min_lr = settings.min_lr, .total_steps = total_steps};
  if (settings.warmup_steps) {
    s.warmup_steps = *settings.warmup_steps;
  } else if (settings.warmup_ratio) {
    s.warmup_steps =
        static_cast<std::int64_t>(std::ceil(*settings.warmup_ratio * static_cast<double>(total_steps)));
    // Rounding up may fill a very short run, which would then train at a learning rate of 0.
    if (*settings.warmup_ratio < 1) s.warmup_steps = std::min(s.warmup_steps, total_steps - 1);
  }
  if (s.warmup_steps >= total_steps) {
    throw Error("[lr_scheduler] warm-up of " + counted(s.warmup_steps, "step") +
                " is not shorter than the run's " + counted(total_steps, "step") +
                "; lower warmup_steps or warmup_ratio");
  }
  if (s.min_lr > lr) throw Error("[lr_scheduler.min_lr] is above optimizer.lr");
  return s;
}

}  // namespace lorikeet::train
