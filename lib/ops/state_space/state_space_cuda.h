#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// Mamba 2's state space on a GPU (state_space.h has the formulas), without libtorch. All pointers are device
// memory, aligned to 16 bytes but for those of steps and of numbers of a head.
namespace lorikeet::ops {

/// A packed batch, and how its rows are divided. A sequence's chunks of kChunk tokens have places among those
/// of the batch ("slots") that a kernel finds from the sequences' ends alone; some slots have no tokens.
struct StateSpaceSizes {
  static constexpr int kChunk = 64;           ///< tokens
  static constexpr int kMostStateDim = 256;   ///< whose states fit in shared memory, a slice of columns each
  static constexpr int kDimMultiple = 8;      ///< of state_dim and head_dim
  static constexpr int kDecays = 3 * kChunk;  ///< numbers of a chunk and head: see StateSpaceChunks
  static constexpr int kHeadsOfBlock = 4;     ///< of a group, whose gradients of B and C a block sums

  std::int64_t tokens, sequences;
  std::int64_t heads, head_dim, groups, state_dim;

  /// Those of sequence s begin at ends[s] / kChunk + s, of as many as it needs and at most one more.
  std::int64_t slots() const { return tokens / kChunk + sequences; }
  /// Places of states between chunks of a sequence: that behind the chunk whose first row is r is number
  /// r / kChunk, that before it the one before. No two chunks have the same, and short sequences none.
  std::int64_t boundaries() const { return tokens / kChunk; }
  /// Columns of a state that a block of a scan has, and the blocks of a head.
  std::int64_t slice_columns() const { return state_dim > kMostStateDim / 2 ? 16 : 32; }
  std::int64_t slices() const { return (head_dim + slice_columns() - 1) / slice_columns(); }
  /// Blocks that share a group's heads.
  std::int64_t blocks_of_group() const { return (heads / groups + kHeadsOfBlock - 1) / kHeadsOfBlock; }
};

/// What a call is given.
struct StateSpaceRows {
  const int* ends;  ///< [sequences + 1]: cu_seqlens
  const void* xbc;  ///< [tokens, heads head_dim + 2 groups state_dim]
  const void* dt;   ///< [tokens, heads], rows dt_stride elements apart
  std::int64_t dt_stride;
  const float* a_log;    ///< [heads]
  const float* dt_bias;  ///< [heads]
  const float* d;        ///< [heads]
};

/// What is computed of each chunk alone. With g = -exp(a_log) step and G_i the sum of g of the chunk's tokens
/// up to i, decays are step_i, then G_i rounded to fp32, then what that rounding left off: where a head
/// forgets a lot, G is large, and its differences between neighbours are small.
struct StateSpaceChunks {
  float* decays;    ///< [slots, heads, kDecays]
  float* products;  ///< C_i.B_j: [slots, groups, kChunk, kChunk]
};

/// What backward keeps of its passes over the chunks, in order and in reverse.
struct StateSpaceStates {
  /// The state before a chunk but a sequence's first: [boundaries, heads, state_dim, head_dim].
  float* before;
  float* behind;  ///< the gradient of that behind a chunk but a sequence's last, alike
  float* steps;   ///< x_t.du_t of u = step x, by slices of its columns: [slices, tokens, heads]
  float* sums;    ///< B's and C's gradients by blocks of heads: [blocks_of_group, tokens, 2 groups state_dim]
};

/// Each is one launch; nothing without sequences. `element`: of xbc, dt, out and their gradients. `stream` is
/// a cudaStream_t. They throw Error when the launch fails, and always in a build without CUDA.
void launch_state_space_chunks(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                               const StateSpaceChunks& chunks, void* stream);
/// out: [tokens, heads * head_dim]. States before and behind the sequences: [sequences, heads, state_dim,
/// head_dim], or nullptr, which is 0 and nowhere.
void launch_state_space_forward(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                const StateSpaceChunks& chunks, const float* before, float* behind, void* out,
                                void* stream);
/// Writes states.before.
void launch_state_space_states(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                               const StateSpaceChunks& chunks, const StateSpaceStates& states, void* stream);
/// Writes states.behind, states.steps and x's columns of dxbc.
void launch_state_space_reverse(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                const StateSpaceChunks& chunks, const void* dout,
                                const StateSpaceStates& states, void* dxbc, void* stream);
/// Writes states.sums, and ddt, whose rows are ddt_stride elements apart.
void launch_state_space_gradients(CudaElement element, const StateSpaceSizes& sizes, const StateSpaceRows& in,
                                  const StateSpaceChunks& chunks, const void* dout,
                                  const StateSpaceStates& states, void* ddt, std::int64_t ddt_stride,
                                  void* stream);
/// Writes B's and C's columns of dxbc: the blocks' sums, in their order.
void launch_state_space_sums(CudaElement element, const StateSpaceSizes& sizes, const float* sums, void* dxbc,
                             void* stream);

}  // namespace lorikeet::ops
