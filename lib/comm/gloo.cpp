#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/backend_communicator.h"
#include "comm/backends.h"
#include "comm/interfaces.h"
#include "comm/reason.h"

namespace lorikeet::comm {
namespace {

// Gloo says where in its source: "Gloo connectFullMesh failed with [/src/pair.cc:152] timed out connecting".
std::string without_source(const std::string& text) {
  const std::size_t begin = text.find("[/"), end = text.find("] ", begin);
  return begin == std::string::npos || end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

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
                    " processes: " + without_source(reason(error)) + "; " +
                    advice_for_unreachable_peers("this rank", options.address),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::comm
