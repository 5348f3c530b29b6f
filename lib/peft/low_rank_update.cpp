#include "peft/low_rank_update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace lorikeet::peft {
namespace {

struct Factors {
  at::Tensor q_b, q_a;  // [out, *], [in, *], orthonormal columns
  at::Tensor core;      // scale * B A = q_b core q_a^T
};

Factors factors_of(const LowRankUpdate& update) {
  auto [q_b, r_b] = at::linalg_qr(update.b);
  auto [q_a, r_a] = at::linalg_qr(update.a.t());
  return {std::move(q_b), std::move(q_a), at::mm(r_b, r_a.t()) * update.scale};
}

}  // namespace

UpdateSvd svd(const LowRankUpdate& update) {
  const Factors factors = factors_of(update);
  const auto [u, s, vt] = at::linalg_svd(factors.core, /*full_matrices=*/false);
  return {at::mm(factors.q_b, u), s, at::mm(vt, factors.q_a.t())};
}

at::Tensor singular_values(const LowRankUpdate& update) {
  return at::linalg_svdvals(factors_of(update).core);
}

double inner_product(const LowRankUpdate& x, const LowRankUpdate& y) {
  // trace((B1 A1)^T B2 A2): the sum of the elements of B1^T B2 times those of A1 A2^T.
  const at::Tensor product = at::mm(x.b.t(), y.b).mul_(at::mm(x.a, y.a.t()));
  return x.scale * y.scale * product.sum().item<double>();
}

LowRankUpdate weighted_sum(const std::vector<LowRankUpdate>& updates, const std::vector<double>& weights) {
  LowRankUpdate sum;
  sum.scale = 0;
  for (std::size_t i = 0; i < updates.size(); ++i)
    sum.scale = std::max(sum.scale, std::abs(weights[i] * updates[i].scale));
  std::vector<at::Tensor> as, bs;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    as.push_back(updates[i].a);
    bs.push_back(updates[i].b * (weights[i] * updates[i].scale / sum.scale));
  }
  sum.a = at::cat(as, 0);
  sum.b = at::cat(bs, 1);
  return sum;
}

LowRankUpdate truncated(const UpdateSvd& svd, std::int64_t rank, double scale) {
  const at::Tensor root = (svd.s.narrow(0, 0, rank) / scale).sqrt_();
  return {root.unsqueeze(1) * svd.vt.narrow(0, 0, rank), svd.u.narrow(1, 0, rank) * root, scale};
}

std::int64_t rank_for_share(const at::Tensor& singular_values, double share) {
  const at::Tensor squares = singular_values.square();
  const double wanted = share * squares.sum().item<double>();
  double kept = 0;
  for (std::int64_t rank = 1; rank < squares.size(0); ++rank) {
    kept += squares[rank - 1].item<double>();
    if (kept >= wanted) return rank;
  }
  return squares.size(0);
}

}  // namespace lorikeet::peft
