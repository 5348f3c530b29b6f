#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/backends.h"
#include "comm/reason.h"

namespace lorikeet::comm {
namespace {

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                   const CommunicatorOptions& options)
      : Communicator(rank, size, options.observer) {
    const auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(options.address, /*lazyInit=*/false));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
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
  static Wait waiting(c10::intrusive_ptr<c10d::Work> work) {
    return [work = std::move(work)] { work->wait(); };
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Communicator> join_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const CommunicatorOptions& options) {
  try {
    return std::make_unique<GlooCommunicator>(store, rank, size, options);
  } catch (const std::exception& error) {
    throw Error("[rank " + std::to_string(rank) + "] can't join the group of " + std::to_string(size) +
                    " processes on " + options.address + ": " + reason(error),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::comm
