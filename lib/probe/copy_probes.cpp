#include <ATen/ATen.h>

#include "base/log.h"
#include "ops/cuda_library.h"
#include "probe/probes.h"
#include "probe/stopwatch.h"

namespace lorikeet::probe {
namespace {

// Whatever is in the streams of the tensor's GPU before this is done.
void wait_for(const at::Tensor& tensor) { tensor[0].item(); }

// Eight bytes an element, none like its neighbour; another one each round. In main memory.
at::Tensor pattern(std::int64_t elements, std::int64_t round) {
  constexpr std::int64_t kOdd = 0x1E3779B97F4A7C15;
  return at::arange(elements, at::kLong).add_(1 + round).mul_(kOdd);
}

// "" where all is equal.
std::string difference(const at::Tensor& got, const at::Tensor& expected) {
  if (at::equal(got, expected)) return "";
  const at::Tensor bytes = got.view(at::kByte) != expected.view(at::kByte);
  return std::to_string(bytes.sum().item<std::int64_t>()) + " of " + std::to_string(bytes.numel()) +
         " bytes differ, the first at " + std::to_string(bytes.nonzero()[0][0].item<std::int64_t>());
}

template <typename Copy>
double gb_per_second(std::int64_t bytes, const Copy& copy) {
  constexpr int kTimes = 4;
  copy(1);
  const Stopwatch watch;
  copy(kTimes);
  return static_cast<double>(bytes) * kTimes / 1e9 / watch.seconds();
}

}  // namespace

ProbeAnswer probe_transfer(const ProbeRequest& request) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  const at::Tensor expected = pattern(kBytes / 8, 0);
  // The card first: CUDA starts with it, which pinning memory needs.
  at::Tensor card =
      at::empty_like(expected, at::TensorOptions().device(ops::use_cuda_device(request.device)));
  const auto pinned = at::TensorOptions().dtype(at::kLong).pinned_memory(true);
  at::Tensor host = at::empty(expected.sizes(), pinned).copy_(expected);

  ProbeAnswer answer;
  answer.figures.emplace_back("host_to_device_gb_per_second", gb_per_second(kBytes, [&](int times) {
                                for (int i = 0; i < times; ++i) card.copy_(host, /*non_blocking=*/true);
                                wait_for(card);
                              }));
  host.zero_();
  answer.figures.emplace_back("device_to_host_gb_per_second", gb_per_second(kBytes, [&](int times) {
                                for (int i = 0; i < times; ++i) host.copy_(card, /*non_blocking=*/true);
                                wait_for(card);
                              }));
  if (const std::string what = difference(host, expected); !what.empty())
    answer.wrong.push_back("a pattern that went to the GPU and back: " + what);
  return answer;
}

ProbeAnswer probe_peer_copy(const ProbeRequest& request) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20, kRounds = 2;
  ProbeAnswer answer;
  for (const int to : request.peers) {
    const std::string pair = "cuda:" + std::to_string(request.device) + " to cuda:" + std::to_string(to);
    log_info("copying from " + pair);
    for (std::int64_t round = 0; round < kRounds; ++round) {
      const at::Tensor expected = pattern(kBytes / 8, round);
      const at::Tensor from = expected.to(ops::cuda_device(request.device));
      at::Tensor arrived = at::zeros_like(expected, at::TensorOptions().device(ops::cuda_device(to)));
      wait_for(arrived);
      arrived.copy_(from);
      const std::string what = difference(arrived.cpu(), expected);
      if (!what.empty()) {
        answer.wrong.push_back("a pattern copied from " + pair + ": " + what);
        break;
      }
      if (round + 1 < kRounds) continue;
      answer.figures.emplace_back("to_cuda_" + std::to_string(to) + "_gb_per_second",
                                  gb_per_second(kBytes, [&](int times) {
                                    for (int i = 0; i < times; ++i) arrived.copy_(from);
                                    wait_for(arrived);
                                    wait_for(from);
                                  }));
    }
  }
  return answer;
}

}  // namespace lorikeet::probe
