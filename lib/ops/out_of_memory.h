#pragma once

#include <exception>

namespace lorikeet::ops {

/// Whether memory that ran out is behind an error: that of the host, libtorch's allocator of a GPU, or what
/// CUDA takes beside it, for the code of a kernel that is called for the first time or for cuBLAS.
bool is_out_of_memory(const std::exception& error);

}  // namespace lorikeet::ops
