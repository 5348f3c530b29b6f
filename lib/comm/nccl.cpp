#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "comm/backends.h"
#include "comm/reason.h"

namespace lorikeet::comm {
namespace {

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const at::Device& device,
                   const CommunicatorOptions& options)
      : Communicator(rank, size, options.observer) {
    const auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = options.timeout;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl);
    group_->eagerConnectSingleDevice(device);
  }

 protected:
  Wait start_all_reduce(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    return waiting(group_->allreduce(tensors));
  }

  Wait start_all_gather(at::Tensor& out, at::Tensor& in) override {
    return waiting(group_->_allgather_base(out, in));
  }

  Wait start_broadcast(at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return waiting(group_->broadcast(tensors, options));
  }

 private:
  // Makes the current stream wait; the host goes on.
  static Wait waiting(c10::intrusive_ptr<c10d::Work> work) {
    return [work = std::move(work)] { work->wait(); };
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options) {
  try {
    return std::make_unique<NcclCommunicator>(store, rank, size, device, options);
  } catch (const std::exception& error) {
    throw Error("[rank " + std::to_string(rank) + "] can't join the NCCL group of " + std::to_string(size) +
                    " processes: " + reason(error),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::comm
