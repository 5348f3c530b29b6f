// Linked instead of nccl.cpp where CUDA is absent.
#include "base/error.h"
#include "comm/backends.h"

namespace lorikeet::comm {

std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, const at::Device&,
                                        const CommunicatorOptions&) {
  throw Error("[launch] expected a build with CUDA for several GPUs; configure with -DLORIKEET_CUDA=ON",
              ErrorKind::kEnvironment);
}

}  // namespace lorikeet::comm
