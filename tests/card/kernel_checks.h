#pragma once

// What the tests of our CUDA kernels share.
#include <ATen/ATen.h>

#include <string>

#include "card/report.h"
#include "ops/distance.h"
#include "support/catch.h"

namespace lorikeet::test {

inline const at::Device kCard("cuda:1");

/// A pair of functions of tensors on the card, for inputs on the host.
inline at::Tensor on_card(const at::Tensor& x, const Forward& pair) {
  return as_autograd(x, [=](const at::Tensor& in, Backward& backward) {
    Backward inner;
    const at::Tensor y = pair(in.to(kCard), inner).cpu();
    backward = [=](const at::Tensor& dy) { return inner(dy.to(kCard)).cpu(); };
    return y;
  });
}

/// Compares a pair with its reference in each dtype, and that the kernels of `file` ran, without a hazard.
/// fp64 has no kernel: there the reference runs, on the card.
inline void check_kernel_dtypes(const std::string& file, const Forward& pair, const Function& reference,
                                const at::Tensor& x) {
  for (const auto& tolerance : kTolerances) {
    if (tolerance.dtype == at::kDouble) continue;
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    card::reset_report();
    const auto found =
        distance([&](const at::Tensor& in) { return on_card(in, pair); }, reference, x, tolerance.dtype);
    CHECK(found.forward < tolerance.forward);
    CHECK(found.backward < tolerance.backward);
    CHECK(card::report().kernels[file] >= 2);
    CHECK(card::report().hazards.empty());
  }
}

inline at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) { return leaf(sizes, seed).detach(); }

}  // namespace lorikeet::test
