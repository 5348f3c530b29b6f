#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "comm/backend_communicator.h"
#include "comm/backends.h"
#include "comm/reason.h"

namespace lorikeet::comm {

std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options) {
  // The launcher or PeerWatch ends a run that has failed, and says why. What c10d does by itself, ending the
  // process with a stack trace as soon as a peer is gone, would come before that.
  constexpr int kKeepWhatIsSet = 0;
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", kKeepWhatIsSet);
  try {
    const auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = options.timeout;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl);
    group->eagerConnectSingleDevice(device);
    return std::make_unique<BackendCommunicator>(std::move(group), options);
  } catch (const std::exception& error) {
    throw Error("[rank " + std::to_string(rank) + "] can't join the NCCL group of " + std::to_string(size) +
                    " processes: " + reason(error),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::comm
