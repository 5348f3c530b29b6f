#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/program_module.h"
#include "comm/backend_communicator.h"
#include "comm/backends.h"
#include "comm/nccl_module.h"
#include "comm/reason.h"

namespace lorikeet::comm {
std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options) {
  // The launcher or PeerWatch ends a run that has failed, and says why. What c10d does by itself, ending the
  // process with a stack trace as soon as a peer is gone, would come before that.
  // torchrun presets the first of these.
  constexpr int kOverwrite = 1;
  for (const char* ending : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_RETHROW_CUDA_ERRORS",
                             "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT"})
    setenv(ending, "0", kOverwrite);
  static auto* const join = reinterpret_cast<JoinNcclGroup*>(function_beside_program(
      "liblorikeet_nccl.so", kJoinNcclGroup,
      "[launch] several GPUs need liblorikeet_nccl.so, which is built beside the programs"));
  c10::intrusive_ptr<c10d::Backend> group;
  try {
    join(store, rank, size, options.timeout, device, &group);
  } catch (const std::exception& error) {
    if (is_nccl_out_of_memory(error)) throw;
    throw Error("[rank " + std::to_string(rank) + "] can't join the NCCL group of " + std::to_string(size) +
                    " processes: " + reason(error),
                ErrorKind::kEnvironment);
  }
  return std::make_unique<BackendCommunicator>(std::move(group), options);
}

}  // namespace lorikeet::comm
