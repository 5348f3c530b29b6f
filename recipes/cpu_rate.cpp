#include "recipes/cpu_rate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "ops/dtype.h"
#include "ops/matmul/matmul.h"

namespace lorikeet::recipes {
namespace {

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kMostWidth = 2048;
constexpr double kSeconds = 0.4;

}  // namespace

double product_rate(const nn::ModelShape& shape, const precision::Policy& policy) {
  using Clock = std::chrono::steady_clock;
  const auto options = at::TensorOptions().dtype(ops::to_torch(policy.compute));
  const std::int64_t in = std::min(shape.hidden_size, kMostWidth);
  const std::int64_t out = std::min(2 * shape.intermediate_size, kMostWidth);
  const at::Tensor x = at::ones({kRows, in}, options), weight = at::ones({out, in}, options);
  const double operations = 4.0 * static_cast<double>(kRows * in * out);
  double best = 0, spent = 0;
  // The first try pays for what libraries set up.
  for (int tries = 0; tries < 2 || spent < kSeconds; ++tries) {
    const Clock::time_point begin = Clock::now();
    const at::Tensor forward = ops::matmul_nt(x, weight);
    const at::Tensor backward = ops::matmul_nn(forward, weight);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, operations / seconds);
    spent += seconds;
  }
  return best;
}

}  // namespace lorikeet::recipes
