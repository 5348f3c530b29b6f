#include "comm/nccl_module.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" {
lorikeet::comm::JoinNcclGroup lorikeet_join_nccl_group;
}

void lorikeet_join_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                              std::chrono::milliseconds timeout, const at::Device& device,
                              c10::intrusive_ptr<c10d::Backend>* group) {
  // A stream of libtorch's other pool: the copies of offloading take theirs from the usual one, in turn.
  const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = timeout;
  const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  nccl->eagerConnectSingleDevice(device);
  *group = nccl;
}
