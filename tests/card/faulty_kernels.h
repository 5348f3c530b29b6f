#pragma once

namespace lorikeet::card {

/// Kernels of 64 threads that add up 64 numbers to out[0], and twice their sum to out[1], right or with one
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

/// The same of copies into shared memory that go on beside a block's threads: out[0] gets the sum, out[1]
/// that of the first 32 numbers.
enum class CopyFault {
  kNone,
  kNotAwaited,  ///< they are read while they may be under way
  kOverRead,    ///< they begin where other warps still read
};

void launch_copied_sum(CopyFault fault, const float* in, float* out, void* stream);

void launch_sum(Fault fault, const float* in, float* out, void* stream);

}  // namespace lorikeet::card
