#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// Arithmetic of LoRA updates scale * B A from their factors alone: the product, of the base weight's size, is
// never formed. All tensors are fp64 on the CPU.
namespace lorikeet::peft {

/// The change scale * B A of one weight [out, in].
struct LowRankUpdate {
  at::Tensor a;  ///< [rank, in]
  at::Tensor b;  ///< [out, rank]
  double scale = 1;

  std::int64_t rank() const { return a.size(0); }
  std::int64_t in_features() const { return a.size(1); }
  std::int64_t out_features() const { return b.size(0); }
};

/// The thin singular value decomposition scale * B A = U diag(S) V^T, with k = min(rank, in, out).
struct UpdateSvd {
  at::Tensor u;   ///< [out, k]
  at::Tensor s;   ///< [k], from the largest down
  at::Tensor vt;  ///< [k, in]
};

/// By QR of B and A^T and the decomposition of the small product of their triangles.
UpdateSvd svd(const LowRankUpdate& update);

/// The singular values alone, [min(rank, in, out)], from the largest down.
at::Tensor singular_values(const LowRankUpdate& update);

/// The sum of the products of all elements of two updates of one shape.
double inner_product(const LowRankUpdate& x, const LowRankUpdate& y);

/// sum of weights[i] * updates[i], exactly: the As stacked, the Bs side by side with each one's factor. What
/// the factors have in common, the largest |weights[i] * scale|, becomes the sum's scale, so that a B whose
/// factor it is stays as it was to the bit. Weights must not be zero, and shapes must agree.
LowRankUpdate weighted_sum(const std::vector<LowRankUpdate>& updates, const std::vector<double>& weights);

/// The nearest update of `rank` (at most the number of singular values) by Eckart and Young, with that scale;
/// each singular value is shared between A and B by halves.
LowRankUpdate truncated(const UpdateSvd& svd, std::int64_t rank, double scale);

/// The least rank, at least 1, whose largest singular values hold `share` (0 to 1) of the sum of all squares.
std::int64_t rank_for_share(const at::Tensor& singular_values, double share);

}  // namespace lorikeet::peft
