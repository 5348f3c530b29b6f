#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/weight_format.h"

namespace lorikeet::ops {

/// Frozen matrices of one format and shape, one for each expert, that lie at equal distances in memory.
struct MatrixStack {
  FrozenMatrix first;
  at::Tensor bytes;    ///< uint8, flat, from the first matrix's begin to the last one's end
  std::int64_t apart;  ///< bytes from one matrix's begin to the next one's
  std::int64_t count;
  at::Tensor bias = {};  ///< [count, rows], or undefined
  /// Of matrices that have to be decoded: the most bytes of numbers at a time, but for a single matrix.
  std::int64_t scratch_bytes = std::int64_t{256} << 20;

  FrozenMatrix of(std::int64_t expert) const;
};

}  // namespace lorikeet::ops
