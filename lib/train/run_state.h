#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/gradient_scaler.h"

namespace lorikeet::train {

/// Where a run stands, beside its tensors: what a checkpoint keeps so that a resumed run goes on as if
/// nothing had happened. The position in the data is the step: the sampler is a function of it.
struct RunState {
  std::int64_t step = 0;       ///< optimizer steps done
  double elapsed_seconds = 0;  ///< of training, over all parts of the run

  struct Best {
    std::int64_t step = 0;
    double val_loss = 0;
  };
  std::optional<Best> best;  ///< of the evaluations so far
  std::int64_t evaluations_since_best = 0;
  bool validation_pending = false;       ///< of this step, whose validation is due and not done
  std::optional<GradientScaler> scaler;  ///< where the precision policy scales gradients

  Json json() const;
  static RunState from_json(const JsonView& json);
};

}  // namespace lorikeet::train
