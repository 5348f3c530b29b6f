#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::train {

/// Largest resident set of this process so far, in bytes (VmHWM; 0 where /proc is absent).
std::uint64_t peak_resident_bytes();

/// Resident set of this process now, in bytes.
std::uint64_t resident_bytes();

/// Gives free memory inside the C library's heap back to the system. What the math libraries cache lies
/// between their scratch memory, so that in steps with ever new shapes the heap would keep growing.
void release_free_heap();

/// Largest memory so far: of this process on a CPU, of libtorch's allocator on a CUDA device.
std::uint64_t peak_memory_bytes(const at::Device& device);

}  // namespace lorikeet::train
