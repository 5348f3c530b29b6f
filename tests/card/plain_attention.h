#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

// Attention of one sequence in fp32 by plain operators on the CPU: what the stand-ins of ATen's kernels
// compute.
namespace lorikeet::card {

/// Which keys a query sees: at most `left` before it and `right` after it; a negative number is no limit.
struct Window {
  std::int64_t left, right;
};

/// Output [n, H, D] in fp32 and the logarithms of the softmax's denominators [H, n], for q [n, H, D], k and v
/// [L, Hkv, D] of any dtype, H a multiple of Hkv. The queries are the last of the L positions.
std::pair<at::Tensor, at::Tensor> plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                double scale, Window window);

struct PlainGradients {
  at::Tensor q, k, v;  ///< fp32, of the operands' shapes
};

/// The gradients, from forward's output and denominators.
PlainGradients plain_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, double scale,
                              Window window);

/// body(begin, end) for each sequence that isn't empty of `ends`, int32 on the CPU.
template <typename Body>
void for_each_sequence(const at::Tensor& ends, const Body& body) {
  const auto* end = ends.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s + 1 < ends.numel(); ++s) {
    if (end[s] < end[s + 1]) body(end[s], end[s + 1]);
  }
}

}  // namespace lorikeet::card
