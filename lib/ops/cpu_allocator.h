#pragma once

#include "ops/block_pool.h"

namespace lorikeet::ops {

/// Makes libtorch take the memory of CPU tensors of 256 KiB and more from an allocator made for training:
/// blocks come from the kernel, from 2 MiB on as huge pages, and, once free, wait for the next tensor of
/// about their size (BlockPool); what is more than was in use at one time goes back. The C library's heap
/// would either return every activation to the kernel, which zeroes it again, or keep holes: up to 40% more
/// than was in use here. Before the first tensor is made; once for a process (again does nothing).
void install_cpu_allocator();

/// Of its large blocks.
PoolMemory cpu_memory();

/// Gives all free blocks back to the kernel: for the end of work after which less is needed.
void release_free_blocks();

}  // namespace lorikeet::ops
