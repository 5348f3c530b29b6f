#pragma once

#include "comm/communicator.h"

// The two backends; Communicator::join chooses one by device.
namespace lorikeet::comm {

std::unique_ptr<Communicator> join_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const CommunicatorOptions& options);

/// In a build without CUDA this is a stub that throws.
std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options);

}  // namespace lorikeet::comm
