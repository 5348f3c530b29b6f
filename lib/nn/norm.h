#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "ops/norm/norm.h"

namespace lorikeet::nn {

/// The residual stream between blocks: `residual` plus a `delta` that the next norm adds while it reads both
/// (one pass over memory instead of two). The stream's value is residual + delta + terms.
struct Hidden {
  at::Tensor residual;  ///< [T, D]; after the last layer [R, D] of its output rows
  at::Tensor delta;     ///< as wide and long, or undefined for none
  /// Low-rank terms of delta that its projection left to the next norm (ops::LeftTerms).
  std::vector<ops::LowRankTerm> terms = {};

  at::Tensor value() const;
};

struct NormSpec {
  std::string name;  ///< the checkpoint's module name, "model.norm"
  std::int64_t size;
  double eps;
  bool unit_offset = false;  ///< the weight is stored as (scale - 1), as Gemma does
  ops::NormKind kind = ops::NormKind::kRms;
  bool bias = false;
};

/// What a norm's backward needs.
struct NormKept {
  at::Tensor input;
  ops::NormStatistics statistics;
};

/// A norm with frozen parameters. `kept`, unless it is null, gets what backward needs.
class Norm {
 public:
  Norm(const NormSpec& spec, WeightUnit& unit, DType storage);

  /// The norm of the stream; afterwards the stream holds the sum in `residual` and no delta.
  at::Tensor forward(Hidden& hidden, NormKept* kept) const;
  /// The norm of a tensor of its own.
  at::Tensor forward(const at::Tensor& x, NormKept* kept) const;
  /// Forward's result once more.
  at::Tensor again(const NormKept& kept) const;
  /// The input's gradient plus `extra` (undefined for none). `again`, unless it is null, gets forward's
  /// result once more.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& extra, const NormKept& kept,
                      at::Tensor* again = nullptr) const;

  ops::NormParameters parameters() const;
  const ops::NormOptions& options() const { return options_; }

 private:
  ops::NormOptions options_;
  const WeightUnit* unit_;
  std::size_t weight_;
  std::optional<std::size_t> bias_;
};

}  // namespace lorikeet::nn
