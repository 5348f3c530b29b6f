// The kernels between tokens and experts on the fake card, against fp64.
#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/experts/routing.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kKernels = "expert_rows_cuda.cu";

at::Tensor on_host(const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); }

Routing routing_of(std::int64_t tokens, std::int64_t experts, std::int64_t per_token) {
  return route(random({tokens, experts}, 1).to(at::kFloat).to(kCard), {.per_token = per_token});
}

// Each token's rows of [T * k, width], [T, k, width], times the weights.
at::Tensor of_tokens(const at::Tensor& rows, const Routing& routing, RowWeights weights) {
  const at::Tensor places = routing.places.cpu();
  const at::Tensor own =
      on_host(rows).index_select(0, places.flatten()).view({places.size(0), places.size(1), -1});
  return weights == RowWeights::kRouter ? own * on_host(routing.weights).unsqueeze(2) : own;
}

// Launches for rows of this width that begin `offset` elements behind an aligned place.
std::int64_t launches(std::int64_t width, at::ScalarType dtype, std::int64_t offset = 0) {
  const Routing routing = routing_of(3, 4, 2);
  const at::Tensor memory = random({6 * width + offset}, 2).to(dtype).to(kCard);
  const at::Tensor rows = memory.slice(0, offset).view({6, width});
  card::reset_report();
  const at::Tensor combined = combine_rows(rows, routing, RowWeights::kNone);
  const at::Tensor products = row_products(rows, rows);
  const std::int64_t launched = card::report().kernels[kKernels];
  CHECK(card::report().hazards.empty());
  CHECK(relative_distance(on_host(combined), of_tokens(rows, routing, RowWeights::kNone).sum(1)) < 5e-3);
  CHECK(relative_distance(on_host(products), on_host(rows).square().sum(1)) < 1e-6);
  return launched;
}

}  // namespace

TEST_CASE("rows between tokens and experts on a card are fp64's to their dtype's last bits") {
  const std::pair<at::ScalarType, double> dtypes[] = {
      {at::kFloat, 1e-6}, {at::kBFloat16, 4e-3}, {at::kHalf, 5e-4}};
  for (const auto& [dtype, tolerance] : dtypes) {
    // Less than a block, several blocks, of which the last isn't full; more experts a token than are loaded
    // ahead.
    for (const std::int64_t width : {8, 264, 4104}) {
      for (const std::int64_t per_token : {1, 3, 6}) {
        CAPTURE(dtype, width, per_token);
        const Routing routing = routing_of(9, 7, per_token);
        const at::Tensor x = random({9, width}, 2).to(dtype).to(kCard);
        const at::Tensor rows = random({9 * per_token, width}, 3).to(dtype).to(kCard);
        const at::Tensor others = random({9 * per_token, width}, 4).to(dtype).to(kCard);
        for (const RowWeights weights : {RowWeights::kNone, RowWeights::kRouter}) {
          card::reset_report();
          const at::Tensor sums = combine_rows(rows, routing, weights);
          const at::Tensor copies = spread_rows(x, routing, weights);
          CHECK(card::report().kernels[kKernels] == 2);
          CHECK(card::report().hazards.empty());
          CHECK(relative_distance(on_host(sums), of_tokens(rows, routing, weights).sum(1)) < tolerance);
          const at::Tensor expected = weights == RowWeights::kNone
                                          ? on_host(x).unsqueeze(1).expand({9, per_token, width})
                                          : on_host(x).unsqueeze(1) * on_host(routing.weights).unsqueeze(2);
          CHECK(relative_distance(of_tokens(copies, routing, RowWeights::kNone), expected) < tolerance);
        }
        // Sums in fp32 of at most some thousand terms, in another order.
        CHECK(relative_distance(on_host(row_products(rows, others)),
                                (on_host(rows) * on_host(others)).sum(1)) < 3e-6);
      }
    }
  }
}

TEST_CASE("rows that the kernels between tokens and experts don't take go through ATen") {
  CHECK(launches(8, at::kBFloat16) == 2);
  CHECK(launches(12, at::kBFloat16) == 0);
  CHECK(launches(12, at::kFloat) == 2);
  CHECK(launches(16, at::kBFloat16, /*offset=*/1) == 0);
  CHECK(launches(16, at::kDouble) == 0);
}

TEST_CASE("rows between tokens and experts may be more than a launch has blocks") {
  const Routing routing = routing_of(65540, 2, 1);
  const at::Tensor x = random({65540, 8}, 5).to(at::kHalf).to(kCard);
  const at::Tensor rows = spread_rows(x, routing, RowWeights::kNone);
  CHECK(at::equal(combine_rows(rows, routing, RowWeights::kNone).cpu(), x.cpu()));
  const at::Tensor products = row_products(x, x).cpu().slice(0, 65530);
  CHECK(relative_distance(products, on_host(x).slice(0, 65530).square().sum(1)) < 1e-6);
}
