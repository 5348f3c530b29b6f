#pragma once

namespace lorikeet::card {

/// Kernels of 64 threads that add up 64 numbers to out[0] and twice their sum to out[1], right or with one
/// fault.
enum class Fault {
  kNone,
  kMissingBarrier,        ///< other warps' parts are read before they are written
  kMissingSecondBarrier,  ///< parts are written again before other warps have read them
  kDivergentBarrier,      ///< half of the threads end before it
  kTwoBarriers,           ///< warps wait at different ones
  kShuffleOutsideMask,    ///< reads a lane that its mask leaves out
  kCallerOutsideMask,     ///< the mask leaves out who calls
  kEndedLane,             ///< the mask names lanes that have ended
  kDifferentOperations,   ///< lanes of one mask wait at different shuffles
  kUninitialisedShared,   ///< one warp writes no part
  kTooMuchShared,         ///< 64 KiB
};

void launch_sum(Fault fault, const float* in, float* out, void* stream);

}  // namespace lorikeet::card
