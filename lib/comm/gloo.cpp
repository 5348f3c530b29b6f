#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/backend_communicator.h"
#include "comm/backends.h"
#include "comm/reason.h"

namespace lorikeet::comm {

std::unique_ptr<Communicator> join_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const CommunicatorOptions& options) {
  try {
    const auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(options.address, /*lazyInit=*/false));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
    return std::make_unique<BackendCommunicator>(std::move(group), options);
  } catch (const std::exception& error) {
    throw Error("[rank " + std::to_string(rank) + "] can't join the group of " + std::to_string(size) +
                    " processes on " + options.address + ": " + reason(error),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::comm
