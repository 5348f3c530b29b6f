#pragma once

#include "ops/vector.h"

namespace lorikeet::ops::vector {

/// log(1 + x) for x in [0, 1], to 1e-7 of itself: 2 atanh(z) for z = x / (2 + x), at most 1/3, by its series.
LORIKEET_INLINE float log_1_plus(float x) {
  const float z = x / (2.0F + x), square = z * z;
  float p = 1.0F / 13.0F;
  p = p * square + 1.0F / 11.0F;
  p = p * square + 1.0F / 9.0F;
  p = p * square + 1.0F / 7.0F;
  p = p * square + 1.0F / 5.0F;
  p = p * square + 1.0F / 3.0F;
  return 2.0F * z * (p * square + 1.0F);
}

/// log(1 + e^x).
LORIKEET_INLINE float softplus(float x) { return (x > 0.0F ? x : 0.0F) + log_1_plus(exp(x < 0.0F ? x : -x)); }

}  // namespace lorikeet::ops::vector
