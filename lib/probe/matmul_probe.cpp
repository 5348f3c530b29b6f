#include <ATen/ATen.h>

#include "ops/dtype.h"
#include "ops/matmul/matmul.h"
#include "probe/probes.h"
#include "probe/stopwatch.h"

namespace lorikeet::probe {

ProbeAnswer probe_matmul(const ProbeRequest& request) {
  constexpr double kLongEnough = 0.3;  // seconds
  const bool cuda = request.device >= 0;
  const std::int64_t n = cuda ? 8192 : 1024;  // a power of two: exact in every dtype
  const at::Device device =
      cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(request.device)) : at::Device(at::kCPU);
  const auto options = at::TensorOptions().device(device).dtype(ops::to_torch(request.compute));
  ops::set_cuda_products(request.matmul == config::Matmul::kTf32);
  const at::InferenceMode no_gradients;

  ProbeAnswer answer;
  // Sums of n ones; a sum in 16 bits would stop at 256 (bf16) or 2048 (fp16).
  const at::Tensor ones = at::ones({n, n}, options);
  at::Tensor out = ops::matmul_nt(ones, ones);
  const std::int64_t right = (out == n).sum().item<std::int64_t>();
  if (right != n * n) {
    answer.wrong.push_back(std::to_string(n * n - right) + " of " + std::to_string(n * n) +
                           " elements of a product of ones are not " + std::to_string(n));
  }

  const at::Tensor x = at::randn({n, n}, options), w = at::randn({n, n}, options);
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
  const double flops = 2.0 * static_cast<double>(n * n) * static_cast<double>(n * count);
  answer.figures = {{"gflops_per_second", flops / seconds / 1e9}};
  return answer;
}

}  // namespace lorikeet::probe
