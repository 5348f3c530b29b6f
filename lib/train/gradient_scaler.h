#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"

namespace lorikeet::train {

/// Dynamic loss scaling (Micikevicius et al. 2018), with PyTorch's constants: the loss is multiplied by a
/// power of two before backward, so that gradients too small for fp16 survive, and gradients are divided by
/// it before they are used. A step whose gradients overflowed changes nothing and halves the factor; 2,000
/// good steps in a row double it.
class GradientScaler {
 public:
  static constexpr double kFirstScale = 65536;
  static constexpr double kLargestScale = 16777216;  // 2^24: more gains nothing, fp16 spans 2^-24 to 2^16
  static constexpr std::int64_t kGrowthInterval = 2000;

  /// What the loss is multiplied by.
  double scale() const { return scale_; }
  /// Steps that were skipped so far.
  std::int64_t skipped() const { return skipped_; }

  /// Takes in whether a step's gradients were finite. False when they were not although nothing was scaled:
  /// no smaller factor can help.
  bool update(bool finite);

  bool operator==(const GradientScaler&) const = default;

  Json json() const;
  /// Throws Error for numbers that no scaler has.
  static GradientScaler from_json(const JsonView& json);

 private:
  double scale_ = kFirstScale;
  std::int64_t good_steps_ = 0;  // since the factor changed
  std::int64_t skipped_ = 0;
};

}  // namespace lorikeet::train
