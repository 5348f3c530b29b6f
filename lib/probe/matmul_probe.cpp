#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/cuda_library.h"
#include "ops/dtype.h"
#include "ops/matmul/matmul.h"
#include "probe/probes.h"
#include "probe/product_rates.h"
#include "probe/stopwatch.h"

namespace lorikeet::probe {
namespace {

using ops::HalfProducts;

constexpr std::int64_t kSizeCpu = 1024, kSizeCuda = 8192;  // powers of two: exact in every dtype
// A way of multiplying that is slower by this factor is taken by no run and may need minutes for a product.
constexpr double kHopeless = 4;

// Sums of n ones; a sum in 16 bits would stop at 256 (bf16) or 2048 (fp16).
void check_ones(std::int64_t n, const at::TensorOptions& options, const std::string& how,
                ProbeAnswer& answer) {
  const at::Tensor ones = at::ones({n, n}, options);
  const at::Tensor out = ops::matmul_nt(ones, ones);
  const std::int64_t right = (out == n).sum().item<std::int64_t>();
  if (right == n * n) return;
  answer.wrong.push_back(std::to_string(n * n - right) + " of " + std::to_string(n * n) +
                         " elements of a product of ones" + how + " are not " + std::to_string(n));
}

double rate_of_products(std::int64_t n, const at::TensorOptions& options) {
  constexpr double kLongEnough = 0.3;  // seconds
  const at::Tensor x = at::randn({n, n}, options), w = at::randn({n, n}, options);
  at::Tensor out;
  const auto products = [&](std::int64_t count) {
    const Stopwatch watch;
    for (std::int64_t i = 0; i < count; ++i) out = ops::matmul_nt(x, w);
    out[0][0].item();  // waits for the GPU
    return watch.seconds();
  };
  products(1);
  std::int64_t count = 1;
  double seconds = products(count);
  while (seconds < kLongEnough) seconds = products(count *= 2);
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(n * count) / seconds;
}

// 16-bit matrices on a CPU, by both ways that a run may multiply them.
ProbeAnswer probe_half_products(at::ScalarType dtype) {
  ProbeAnswer answer;
  const probe::ProductRates rates = probe::measure_products(
      {.dtype = dtype, .tokens = kSizeCpu, .products = {{.out = kSizeCpu, .in = kSizeCpu}}});
  const at::TensorOptions options(dtype);
  if (rates.native_over_widened > 1 / kHopeless) {
    ops::set_half_products(HalfProducts::kNative);
    check_ones(kSizeCpu, options, ", multiplied natively,", answer);
  }
  ops::set_half_products(HalfProducts::kWidened);
  check_ones(kSizeCpu, options, ", widened,", answer);
  ops::set_half_products(HalfProducts::kByFeature);
  answer.figures = {{"gflops_per_second", std::max(rates.native, rates.widened) / 1e9},
                    {"native_gflops_per_second", rates.native / 1e9},
                    {"widened_gflops_per_second", rates.widened / 1e9},
                    {"native_over_widened", rates.native_over_widened}};
  return answer;
}

}  // namespace

ProbeAnswer probe_matmul(const ProbeRequest& request) {
  const bool cuda = request.device >= 0;
  const std::int64_t n = cuda ? kSizeCuda : kSizeCpu;
  const at::Device device = cuda ? ops::use_cuda_device(request.device) : at::Device(at::kCPU);
  const auto options = at::TensorOptions().device(device).dtype(ops::to_torch(request.compute));
  ops::set_cuda_products(request.matmul == config::Matmul::kTf32);
  const at::InferenceMode no_gradients;
  if (!cuda && dtype_size(request.compute) == 2) return probe_half_products(ops::to_torch(request.compute));
  ProbeAnswer answer;
  check_ones(n, options, "", answer);
  answer.figures = {{"gflops_per_second", rate_of_products(n, options) / 1e9}};
  return answer;
}

}  // namespace lorikeet::probe
