#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "base/philox.h"

// Adapters that begin as a part of the weight W [out, in], fp32, on any device. `rank` is at most the smaller
// of W's sizes.
namespace lorikeet::peft {

struct BaseFactors {
  at::Tensor a;  ///< [rank, in]
  at::Tensor b;  ///< [out, rank]
};

/// PiSSA (Meng et al. 2024, arXiv:2404.02948): scale * b a is the part of W along its `rank` largest singular
/// values, each value's root in a and b. With `iterations` by that many steps of subspace iteration from
/// normal numbers of `stream` (Halko et al. 2011, arXiv:0909.4061, algorithm 4.4), which is much faster for
/// large weights; without by an exact SVD.
BaseFactors pissa_factors(const at::Tensor& weight, std::int64_t rank, double scale,
                          std::optional<std::int64_t> iterations, PhiloxStream stream);

/// OLoRA (Buyukakyuz 2024, arXiv:2406.01775): the first columns of Q and rows of R of W = Q R.
BaseFactors olora_factors(const at::Tensor& weight, std::int64_t rank);

}  // namespace lorikeet::peft
