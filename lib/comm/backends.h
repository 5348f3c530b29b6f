#pragma once

#include "comm/communicator.h"

// The two ways to form a group; Communicator::join picks one by device.
namespace lorikeet::comm {

std::unique_ptr<Communicator> join_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const CommunicatorOptions& options);

/// A stub that throws is linked where CUDA is absent.
std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options);

}  // namespace lorikeet::comm
