#include "peft/low_rank_update.h"

#include <ATen/ATen.h>

#include <cmath>

#include "support/catch.h"

using namespace lorikeet::peft;

namespace {

LowRankUpdate random_update(std::int64_t out, std::int64_t in, std::int64_t rank, double scale = 1.5) {
  return {at::randn({rank, in}, at::kDouble), at::randn({out, rank}, at::kDouble), scale};
}

at::Tensor dense(const LowRankUpdate& update) { return at::mm(update.b, update.a) * update.scale; }

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); }

// Wide, tall, and of a higher rank than a side has.
std::vector<LowRankUpdate> shapes() {
  at::manual_seed(7);
  return {random_update(40, 24, 5), random_update(9, 30, 4), random_update(6, 20, 10),
          random_update(20, 6, 10), random_update(5, 5, 1)};
}

}  // namespace

TEST_CASE("singular values from the factors are those of the dense update") {
  for (const LowRankUpdate& update : shapes()) {
    const at::Tensor whole = at::linalg_svdvals(dense(update)), ours = singular_values(update);
    const std::int64_t count = std::min({update.rank(), update.in_features(), update.out_features()});
    REQUIRE(ours.sizes() == at::IntArrayRef({count}));
    CHECK(distance(ours, whole.narrow(0, 0, count)) < 1e-12 * whole[0].item<double>());
  }
}

TEST_CASE("the decomposition gives the update again, and its vectors are orthonormal") {
  for (const LowRankUpdate& update : shapes()) {
    const UpdateSvd parts = svd(update);
    const at::Tensor whole = dense(update);
    CHECK(distance(at::mm(parts.u * parts.s, parts.vt), whole) < 1e-12 * whole.norm().item<double>());
    const at::Tensor eye = at::eye(parts.s.size(0), at::kDouble);
    CHECK(distance(at::mm(parts.u.t(), parts.u), eye) < 1e-12);
    CHECK(distance(at::mm(parts.vt, parts.vt.t()), eye) < 1e-12);
  }
}

TEST_CASE("the inner product is that of the dense updates") {
  at::manual_seed(8);
  const LowRankUpdate x = random_update(12, 9, 3), y = random_update(12, 9, 5, 0.25);
  const double expected = (dense(x) * dense(y)).sum().item<double>();
  CHECK(inner_product(x, y) == Approx(expected).epsilon(1e-12));
  CHECK(inner_product(x, x) == Approx(dense(x).square().sum().item<double>()).epsilon(1e-12));
}

TEST_CASE("a weighted sum is that of the dense updates, whatever ranks, scales and signs they have") {
  at::manual_seed(9);
  const std::vector<LowRankUpdate> updates = {random_update(12, 9, 3, 2), random_update(12, 9, 5, 0.3),
                                              random_update(12, 9, 1, 7)};
  const std::vector<double> weights = {0.5, -2, 0.1};
  const LowRankUpdate sum = weighted_sum(updates, weights);
  CHECK(sum.rank() == 9);
  CHECK(sum.scale > 0);
  at::Tensor expected = at::zeros({12, 9}, at::kDouble);
  for (std::size_t i = 0; i < updates.size(); ++i) expected += dense(updates[i]) * weights[i];
  CHECK(distance(dense(sum), expected) < 1e-13 * expected.norm().item<double>());
}

TEST_CASE("factors of one size stay as they were to the bit in a sum") {
  at::manual_seed(10);
  const LowRankUpdate x = random_update(7, 8, 2, 0.7), y = random_update(7, 8, 3, 0.7);
  const LowRankUpdate sum = weighted_sum({x, y}, {1.0 / 3, 1.0 / 3});
  CHECK(at::equal(sum.a, at::cat({x.a, y.a}, 0)));
  CHECK(at::equal(sum.b, at::cat({x.b, y.b}, 1)));
  CHECK(sum.scale == 0.7 / 3);
}

TEST_CASE("a truncated update is the nearest of its rank") {
  for (const LowRankUpdate& update : shapes()) {
    const UpdateSvd parts = svd(update);
    const at::Tensor whole = dense(update), values = at::linalg_svdvals(whole);
    for (std::int64_t rank = 1; rank <= parts.s.size(0); ++rank) {
      CAPTURE(rank);
      const LowRankUpdate low = truncated(parts, rank, 3);
      CHECK(low.rank() == rank);
      CHECK(low.scale == 3);
      // Eckart and Young: no update of this rank is nearer than the values that it leaves out.
      const double bound = values.narrow(0, rank, values.size(0) - rank).norm().item<double>();
      CHECK(std::abs(distance(dense(low), whole) - bound) < 1e-11 * whole.norm().item<double>());
      CHECK(low.a.norm().item<double>() == Approx(low.b.norm().item<double>()));
    }
  }
}

TEST_CASE("a truncation that left out the largest value instead would be found") {
  const LowRankUpdate update = shapes()[0];
  UpdateSvd parts = svd(update);
  const double bound = parts.s[4].item<double>();
  parts = {parts.u.flip(1), parts.s.flip(0), parts.vt.flip(0)};
  CHECK(distance(dense(truncated(parts, 4, 1)), dense(update)) > 1.5 * bound);
}

TEST_CASE("the rank for a share is the least that holds it") {
  const at::Tensor values = at::tensor({4.0, 2.0, 2.0, 1.0}, at::kDouble);  // squares 16, 4, 4, 1 of 25
  CHECK(rank_for_share(values, 0.5) == 1);
  CHECK(rank_for_share(values, 0.64) == 1);
  CHECK(rank_for_share(values, 0.65) == 2);
  CHECK(rank_for_share(values, 0.95) == 3);
  CHECK(rank_for_share(values, 0.97) == 4);
  CHECK(rank_for_share(values, 1) == 4);
  CHECK(rank_for_share(at::zeros({3}, at::kDouble), 0.99) == 1);
}
