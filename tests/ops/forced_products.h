#pragma once

#include "ops/matmul/matmul.h"

namespace lorikeet::test {

/// While it lives, a CPU multiplies 16-bit matrices in this way: both must be tried on any machine.
struct Forced {
  explicit Forced(ops::HalfProducts choice) { ops::set_half_products(choice); }
  ~Forced() { ops::set_half_products(ops::HalfProducts::kByFeature); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

}  // namespace lorikeet::test
