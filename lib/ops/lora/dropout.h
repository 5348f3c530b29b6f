#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::ops {

/// Dropout on the input of a group's adapters. Whether a value is kept is a function of
/// (seed, step, sample id, position, group, feature) alone, by Philox: not of packing, of the number of
/// devices or of the order of calls, so that backward makes the same mask again and none is stored.
struct LoraDropout {
  double p;                  ///< the share dropped, in [0, 1); kept values are multiplied by 1 / (1 - p)
  std::uint64_t seed, step;  ///< the run's seed and the optimizer step
  std::uint32_t group;       ///< which group of projections; those of one group share the mask
  at::Tensor sample_ids;     ///< int64 [T]: the example that each row comes from
  at::Tensor position_ids;   ///< int64 [T]: its position there; the lower 32 bits count
};

/// x [T, in] with the mask applied, in x's dtype. The same call on a gradient is its backward.
/// Throws Error when p isn't in [0, 1) or the ids don't fit x.
at::Tensor apply_dropout(const at::Tensor& x, const LoraDropout& dropout);

}  // namespace lorikeet::ops
