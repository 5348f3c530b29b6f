#pragma once

#include <cstdint>

#include "plan/memory.h"
#include "plan/tape.h"

namespace lorikeet::plan {

/// Takes and gives back the tensors of one training step's micro-batch, forward, loss and backward, as the
/// operators of lib/ops and the blocks of lib/nn do. Returns the bytes that one decoder layer keeps for its
/// backward.
std::int64_t run_step(const MemoryInput& input, Tape& tape);

}  // namespace lorikeet::plan
