#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The gated delta rule on a GPU (gated_delta.h has the formulas), without libtorch. All pointers are device
// memory, aligned to 16 bytes but for those of gates and of numbers of a head.
namespace lorikeet::ops {

/// A packed batch, and how its rows are divided. A sequence's chunks of kChunk tokens have places among those
/// of the batch ("slots") that a kernel finds from the sequences' ends alone; some slots have no tokens.
struct DeltaSizes {
  static constexpr int kChunk = 64;        ///< tokens
  static constexpr int kMostKeyDim = 128;  ///< whose states fit in shared memory, a slice of columns each
  static constexpr int kDimMultiple = 8;   ///< of key_dim and value_dim
  /// Numbers of a chunk and value head: beta, then G as the sum of two, the second what the first rounds
  /// away. In differences of large ones fp32 would leave few digits.
  static constexpr int kDecays = 3 * kChunk;

  std::int64_t tokens, sequences;
  std::int64_t key_heads, value_heads, key_dim, value_dim;

  /// Those of sequence s begin at ends[s] / kChunk + s, of as many as it needs and at most one more.
  std::int64_t slots() const { return tokens / kChunk + sequences; }
};

/// What a call is given.
struct DeltaRows {
  const int* ends;       ///< [sequences + 1]: cu_seqlens
  const void* qkv;       ///< [tokens, 2 key_heads key_dim + value_heads value_dim]
  const void* gates;     ///< [tokens, 2 value_heads]: [b | a]
  const float* a_log;    ///< [value_heads]
  const float* dt_bias;  ///< [value_heads]
};

/// What is computed of each chunk alone. With G_i the sum of g of the chunk's tokens up to i:
///   A_ij = beta_i k_i.k_j exp(G_i - G_j) for i > j, else 0;  inverse = (I + A)^-1;
///   scores_ij = q_i.k_j / sqrt(key_dim) exp(G_i - G_j) for i >= j, else 0.
struct DeltaChunks {
  float* norms;    ///< [tokens, 2 key_heads]: what q's and k's heads are multiplied by
  float* decays;   ///< [slots, value_heads, kDecays]
  float* inverse;  ///< [slots, value_heads, kChunk, kChunk]
  float* scores;   ///< the same
};

/// What backward keeps of a pass over the chunks in order: with S the state before a chunk,
///   values = inverse (beta (v - exp(G) k S)).
struct DeltaStates {
  float* states;  ///< S: [slots, value_heads, key_dim, value_dim]; not written for a sequence's first chunk
  float* values;  ///< [tokens, value_heads, value_dim]
};

/// And of one in reverse order.
struct DeltaStateGradients {
  float* states;  ///< of the state behind a chunk, like DeltaStates::states; not written for the last chunk
  float* rows;    ///< of inverse's right operand: [tokens, value_heads, value_dim]
};

/// Each is one launch; nothing without sequences. `element`: of qkv, gates, out and their gradients. `stream`
/// is a cudaStream_t. They throw Error when the launch fails, and always in a build without CUDA.
void launch_delta_chunks(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                         const DeltaChunks& chunks, void* stream);
/// out: [tokens, value_heads * value_dim]. States before and behind the sequences: [sequences, value_heads,
/// key_dim, value_dim], or nullptr, which is 0 and nowhere.
void launch_delta_forward(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                          const DeltaChunks& chunks, const float* before, float* behind, void* out,
                          void* stream);
void launch_delta_states(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                         const DeltaChunks& chunks, const DeltaStates& out, void* stream);
/// Writes v's columns of dqkv.
void launch_delta_reverse(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                          const DeltaChunks& chunks, const void* dout, const DeltaStateGradients& out,
                          void* dqkv, void* stream);
/// Writes q's and k's columns of dqkv, and dgates. `chunks`' matrices are overwritten; `sums`: scratch
/// [tokens, 2 key_heads key_dim].
void launch_delta_gradients(CudaElement element, const DeltaSizes& sizes, const DeltaRows& in,
                            const DeltaChunks& chunks, const DeltaStates& states,
                            const DeltaStateGradients& gradients, const void* dout, float* sums, void* dqkv,
                            void* dgates, void* stream);

}  // namespace lorikeet::ops
