#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "ops/causal_conv/causal_conv.h"
#include "support/as_autograd.h"
#include "support/catch.h"
#include "support/gradcheck.h"

namespace lorikeet::test {

inline at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return leaf(sizes, seed).detach().to(dtype);
}

/// What every dtype holds exactly.
inline at::Tensor convolution_weight(std::int64_t channels, std::int64_t taps, std::uint64_t seed = 50) {
  return drawn({channels, taps}, seed, at::kBFloat16);
}

inline at::Tensor convolution_bias(std::int64_t channels, std::uint64_t seed = 51) {
  return drawn({channels}, seed, at::kBFloat16);
}

/// Sequences that end at `ends`; those on a GPU have their copy there.
inline ops::Sequences sequences_to(const std::vector<std::int32_t>& ends,
                                   const at::Device& device = at::kCPU) {
  ops::Sequences sequences;
  sequences.cu_seqlens = {0};
  sequences.cu_seqlens.insert(sequences.cu_seqlens.end(), ends.begin(), ends.end());
  sequences.cu_seqlens_device = at::tensor(sequences.cu_seqlens).to(device);
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s)
    sequences.max_seqlen =
        std::max<std::int64_t>(sequences.max_seqlen, sequences.cu_seqlens[s + 1] - sequences.cu_seqlens[s]);
  return sequences;
}

/// Lengths 5, 0, 1, 3, 140, 0, 0, 2, 64: shorter than the taps, empty, of several tiles; 215 rows.
inline const std::vector<std::int32_t> kEnds{5, 5, 6, 9, 149, 149, 149, 151, 215};

/// A view of `rows` as columns from 8 on of rows that are wider by `more` and hold NaN beside them, with rows
/// of NaN before and behind.
inline at::Tensor within_wider(const at::Tensor& rows, std::int64_t more) {
  const at::Tensor wide = at::full({rows.size(0) + 2, rows.size(1) + more}, NAN, rows.options());
  return wide.narrow(0, 1, rows.size(0)).narrow(1, 8, rows.size(1)).copy_(rows);
}

/// Whether all that lies beside the columns of such a view is still NaN.
inline bool beside_is_nan(const at::Tensor& view, std::int64_t more) {
  const std::int64_t rows = view.size(0) + 2, width = view.size(1) + more;
  const at::Tensor wide = view.as_strided({rows, width}, {width, 1}, 0).cpu();
  return wide.isnan().sum().item<std::int64_t>() == rows * width - view.numel();
}

/// The convolution and its gradient as a function of x, both in wider rows.
inline Forward convolution_pair(const at::Tensor& weight, const ops::Sequences& sequences,
                                const at::Tensor& bias = {}) {
  return [=](const at::Tensor& rows, Backward& backward) {
    constexpr std::int64_t kMoreOfX = 24, kMoreOfGradient = 40;
    const at::Tensor x = within_wider(rows, kMoreOfX);
    backward = [=](const at::Tensor& dy) {
      const at::Tensor dx = within_wider(at::full_like(rows, 7), kMoreOfGradient);
      ops::causal_conv_backward(dy, x, weight, sequences, dx, bias);
      CHECK(beside_is_nan(dx, kMoreOfGradient));
      CHECK(at::equal(x.cpu(), rows.cpu()));
      return dx.contiguous();
    };
    return ops::causal_conv(x, weight, sequences, {}, bias);
  };
}

}  // namespace lorikeet::test
