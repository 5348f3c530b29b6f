#include <ATen/ATen.h>

#include <chrono>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/interfaces.h"
#include "comm/store.h"
#include "probe/probes.h"
#include "probe/stopwatch.h"

namespace lorikeet::probe {
namespace {

using std::chrono::seconds;

// Rank 0 holds the store: it stays until the others are done with it.
void leave(c10d::Store& store, const ProbeRequest& request, seconds limit) {
  const auto name = [](int rank) { return "left/" + std::to_string(rank); };
  if (request.rank != 0) return comm::announce(store, name(request.rank));
  for (int rank = 1; rank < request.size; ++rank) comm::wait_for(store, name(rank), limit);
}

}  // namespace

ProbeAnswer probe_all_reduce(const ProbeRequest& request) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  constexpr int kTimes = 5;
  const comm::Placement placement{.rank = request.rank,
                                  .world_size = request.size,
                                  .local_rank = request.rank,
                                  .local_size = request.size,
                                  .port = request.port,
                                  .listen_fd = request.listen_fd};
  const comm::CommunicatorOptions options{
      .timeout = std::chrono::seconds(static_cast<std::int64_t>(request.limit_seconds) + 1)};
  const auto limit = std::chrono::duration_cast<seconds>(options.timeout);
  comm::use_for_nccl(options.address);
  const at::Device device = request.device >= 0
                                ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(request.device))
                                : at::Device(at::kCPU);
  log_info("meeting the other ranks");
  const auto store = comm::connect_store(placement, limit);
  log_info("joining the group");
  const auto group = comm::Communicator::join(store, request.rank, request.size, device, options);
  log_info("in the first all-reduce");
  const auto sum = [&] {
    const at::Tensor tensor =
        at::full({kElements}, request.rank + 1, at::TensorOptions().dtype(at::kFloat).device(device));
    group->all_reduce(tensor).wait();
    return tensor;
  };
  const std::int64_t expected = static_cast<std::int64_t>(request.size) * (request.size + 1) / 2;
  const std::int64_t right = (sum() == expected).sum().item<std::int64_t>();

  ProbeAnswer answer;
  if (right != kElements) {
    answer.wrong.push_back("rank " + std::to_string(request.rank) + " has " +
                           std::to_string(kElements - right) + " of " + std::to_string(kElements) +
                           " sums that are not " + std::to_string(expected));
  }
  const Stopwatch watch;
  at::Tensor last;
  for (int i = 0; i < kTimes; ++i) last = sum();
  last[0].item();
  const double bytes = 4.0 * kElements * kTimes * 2 * (request.size - 1) / request.size;
  answer.figures = {{"bus_gb_per_second", bytes / 1e9 / watch.seconds()}};
  leave(*store, request, limit);
  return answer;
}

}  // namespace lorikeet::probe
