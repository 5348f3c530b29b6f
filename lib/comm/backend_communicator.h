#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/communicator.h"

namespace lorikeet::comm {

/// A communicator over one of c10d's backends, which differ only in how they are created. Included by sources
/// only: it keeps c10d's heavy headers out of communicator.h.
class BackendCommunicator : public Communicator {
 public:
  BackendCommunicator(c10::intrusive_ptr<c10d::Backend> backend, const CommunicatorOptions& options);
  BackendCommunicator(const BackendCommunicator&) = delete;
  BackendCommunicator& operator=(const BackendCommunicator&) = delete;

 protected:
  Wait start_all_reduce(at::Tensor& tensor) override;
  Wait start_all_gather(at::Tensor& out, at::Tensor& in) override;
  Wait start_broadcast(at::Tensor& tensor, int root) override;
  void abort_backend() override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace lorikeet::comm
