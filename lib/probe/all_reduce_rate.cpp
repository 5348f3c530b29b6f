#include "probe/all_reduce_rate.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/communicator.h"

namespace lorikeet::probe {
namespace {

constexpr int kWarmUp = 3, kRounds = 10;

// What was sent before has ended when a value of it is on the host.
void finish(const at::Tensor& tensor) { tensor.slice(0, 0, 1).cpu(); }

double mean_seconds(comm::Communicator& group, const at::Device& device, std::int64_t bytes) {
  const at::Tensor tensor = at::zeros({std::max<std::int64_t>(bytes / 4, 1)}, at::TensorOptions(device));
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) group.all_reduce(tensor).wait();
    finish(tensor);
  };
  rounds(kWarmUp);
  const auto start = std::chrono::steady_clock::now();
  rounds(kRounds);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRounds;
}

}  // namespace

double all_reduce_rate(const std::vector<at::Device>& devices, std::int64_t bytes) {
  // libtorch's flight recorder takes in groups without a lock: ranks that are threads can't have it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const int size = static_cast<int>(devices.size());
  std::vector<double> seconds(devices.size());
  std::vector<std::exception_ptr> errors(devices.size());
  std::vector<std::thread> ranks;
  ranks.reserve(devices.size());
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const comm::CommunicatorOptions options{.timeout = std::chrono::seconds(20)};
        const auto group =
            comm::Communicator::join(store, static_cast<int>(rank), size, devices[rank], options);
        seconds[rank] = mean_seconds(*group, devices[rank], bytes);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return comm::sent_bytes(comm::Collective::kAllReduce, bytes, size) /
         *std::max_element(seconds.begin(), seconds.end()) / 1e9;
}

}  // namespace lorikeet::probe
