#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "nn/weights.h"

namespace lorikeet::nn {

/// The residual stream between blocks: `residual` plus a `delta` that the next norm adds while it reads both
/// (one pass over memory instead of two). The stream's value is residual + delta.
struct Hidden {
  at::Tensor residual;  ///< [T, D]
  at::Tensor delta;     ///< [T, D], or undefined for none

  at::Tensor value() const;
};

struct NormSpec {
  std::string name;  ///< the checkpoint's module name, "model.norm"
  std::int64_t size;
  double eps;
  bool unit_offset = false;  ///< the weight is stored as (scale - 1), as Gemma does
};

/// RMS norm with a frozen scale (Zhang & Sennrich 2019, as in Llama).
class Norm {
 public:
  Norm(const NormSpec& spec, WeightUnit& unit, DType storage);

  /// The norm of the stream; afterwards the stream holds the sum in `residual` and no delta.
  at::Tensor forward(Hidden& hidden) const;
  /// The norm of a tensor of its own.
  at::Tensor forward(const at::Tensor& x) const;

 private:
  NormSpec spec_;
  const WeightUnit* unit_;
  std::size_t segment_;
};

}  // namespace lorikeet::nn
