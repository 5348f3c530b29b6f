#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lorikeet::ops {

/// Makes libtorch take the memory of large CPU tensors (2 MiB and more) from an allocator made for training:
/// blocks come from the kernel as huge pages and, once free, wait for the next tensor of about their size, up
/// to an eighth of what is in use; the rest goes back at once. The C library's heap would either return every
/// activation to the kernel, which zeroes it again, or keep holes: up to 40% more than was in use here.
/// Before the first tensor is made; once for a process (again does nothing).
void install_cpu_allocator();

/// How it treats large blocks, for who wants to foretell what a program holds (lib/plan/tape.h).
struct CpuAllocatorRules {
  std::int64_t block_bytes = std::int64_t{2} << 20;         ///< from here on large; sizes are multiples of it
  std::int64_t always_kept_bytes = std::int64_t{64} << 20;  ///< free blocks that wait, at most,
  std::int64_t kept_part = 8;                               ///< or this part of what is in use
  std::int64_t slack_part = 8;  ///< a block serves a tensor that it exceeds by this part at most

  /// Bytes of free blocks that wait, at most, while so many are in use.
  constexpr std::int64_t most_kept(std::int64_t used) const {
    return std::max(always_kept_bytes, used / kept_part);
  }
};
inline constexpr CpuAllocatorRules kCpuAllocatorRules;

/// Bytes of large blocks in use, and free but kept.
struct CpuMemory {
  std::size_t used = 0;
  std::size_t kept = 0;
};
CpuMemory cpu_memory();

}  // namespace lorikeet::ops
