#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

// The one function of liblorikeet_nccl.so, which lies beside the programs and alone names symbols of
// libtorch's CUDA half: so that they start without it (ops/cuda_library.h).
namespace lorikeet::comm {

/// Joins the NCCL group of `size` processes as `rank` on the GPU `device`, into *group. Throws what libtorch
/// throws.
using JoinNcclGroup = void(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           std::chrono::milliseconds timeout, const at::Device& device,
                           c10::intrusive_ptr<c10d::Backend>* group);

inline constexpr const char* kJoinNcclGroup = "lorikeet_join_nccl_group";

}  // namespace lorikeet::comm
