#include <ATen/ATen.h>

#include <chrono>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/interfaces.h"
#include "comm/store.h"
#include "ops/cuda_library.h"
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
  const std::int64_t elements = request.bytes / 4;
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
  const at::Device device = request.device >= 0 ? ops::use_cuda_device(request.device) : at::Device(at::kCPU);
  log_info("meeting the other ranks");
  const auto store = comm::connect_store(placement, limit);
  log_info("joining the group");
  const auto group = comm::Communicator::join(store, request.rank, request.size, device, options);
  log_info("in the first all-reduce");
  const auto options_of = at::TensorOptions().dtype(at::kFloat).device(device);
  const at::Tensor addend = at::full({elements}, request.rank + 1, options_of);
  const auto sum = [&] {
    const at::Tensor tensor = addend.clone();
    group->all_reduce(tensor).wait();
    return tensor;
  };
  const std::int64_t expected = static_cast<std::int64_t>(request.size) * (request.size + 1) / 2;
  const std::int64_t right = (sum() == expected).sum().item<std::int64_t>();

  ProbeAnswer answer;
  if (right != elements) {
    answer.wrong.push_back("rank " + std::to_string(request.rank) + " has " +
                           std::to_string(elements - right) + " of " + std::to_string(elements) +
                           " sums that are not " + std::to_string(expected));
  }
  log_info("in a gather and a broadcast");
  const at::Tensor all = at::zeros({request.size}, options_of), one = at::full({1}, request.rank, options_of);
  group->all_gather(all, one).wait();
  group->broadcast(one, request.size - 1).wait();
  if (!all.equal(at::arange(request.size, options_of)) ||
      one.item<float>() != static_cast<float>(request.size - 1))
    answer.wrong.push_back("rank " + std::to_string(request.rank) +
                           " got wrong numbers from a gather or a broadcast");
  log_info("in timed all-reduces");
  const Stopwatch watch;
  at::Tensor last;
  for (int i = 0; i < kTimes; ++i) last = sum();
  last[0].item();
  const double bytes = 4.0 * static_cast<double>(elements) * kTimes * 2 * (request.size - 1) / request.size;
  answer.figures = {{"bus_gb_per_second", bytes / 1e9 / watch.seconds()}};
  leave(*store, request, limit);
  return answer;
}

}  // namespace lorikeet::probe
