#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "comm/communicator.h"

namespace lorikeet::test {

/// Catch's assertions are for one thread at a time: a rank that makes some holds this meanwhile.
inline std::mutex& assertions() {
  static std::mutex mutex;
  return mutex;
}

/// libtorch's flight recorder is one for the process, and takes in process groups without a lock
/// (FlightRecorder::recordWithResetEnabled): ranks that are threads can't have it. Before the first
/// communicator.
inline void turn_flight_recorder_off() { setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1); }

/// Runs `body` on `size` ranks, each a thread of this process with a communicator over Gloo; rethrows the
/// first exception when all have ended.
inline void on_ranks(int size, const std::function<void(comm::Communicator&)>& body,
                     const comm::CommunicatorOptions& options = {}) {
  turn_flight_recorder_off();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto communicator = comm::Communicator::join(store, rank, size, at::Device(at::kCPU), options);
        body(*communicator);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lorikeet::test
