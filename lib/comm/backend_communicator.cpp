#include "comm/backend_communicator.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/log.h"
#include "comm/reason.h"

namespace lorikeet::comm {
namespace {

// Gloo's wait blocks the host, NCCL's makes the current stream wait.
std::function<void()> waiting(c10::intrusive_ptr<c10d::Work> work) {
  return [work = std::move(work)] { work->wait(); };
}

}  // namespace

BackendCommunicator::BackendCommunicator(c10::intrusive_ptr<c10d::Backend> backend,
                                         const CommunicatorOptions& options)
    : Communicator(backend->getRank(), backend->getSize(), options), backend_(std::move(backend)) {}

Communicator::Wait BackendCommunicator::start_all_reduce(at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return waiting(backend_->allreduce(tensors));
}

Communicator::Wait BackendCommunicator::start_all_gather(at::Tensor& out, at::Tensor& in) {
  return waiting(backend_->_allgather_base(out, in));
}

Communicator::Wait BackendCommunicator::start_broadcast(at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return waiting(backend_->broadcast(tensors, options));
}

// It is called by threads that nothing may leave by an exception. On a device that has failed abort itself
// fails; the process ends then anyway.
void BackendCommunicator::abort_backend() {
  try {
    backend_->abort();
  } catch (const std::exception& error) {
    log_warning("a group of ranks can't be aborted: " + reason(error));
  }
}

}  // namespace lorikeet::comm
