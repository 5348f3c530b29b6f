#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/attention/tiles.h"
#include "ops/chunk_products.h"
#include "ops/chunk_rows.h"
#include "ops/state_space/state_space.h"
#include "ops/vector.h"

// What the CPU's forward and backward of the state space share: a chunk of tokens (chunk_rows.h), the blocks
// of heads that threads take, and B and C of a chunk.
namespace lorikeet::ops::cpu::state {

using chunked::kChunk;
using chunked::padded;

/// Sizes of a head in scratch: multiples of kStep.
struct Widths {
  explicit Widths(const StateSpaceLayout& layout)
      : head(padded(layout.head_dim)), state(padded(layout.state_dim)) {}
  std::int64_t head;   ///< of x
  std::int64_t state;  ///< of B and C
  std::int64_t elements() const { return head * state; }
};

/// Heads of a group that a thread takes at a time, for which it multiplies C and B once. A number of its own,
/// so that sums over blocks don't depend on the threads.
inline constexpr std::int64_t kBlockHeads = 8;

/// The blocks of heads that a layer is divided into.
struct Blocks {
  explicit Blocks(const StateSpaceLayout& layout)
      : group_heads(layout.heads / layout.groups),
        in_group((group_heads + kBlockHeads - 1) / kBlockHeads),
        count(layout.groups * in_group),
        most_heads(std::min(kBlockHeads, group_heads)) {}

  std::int64_t group_of(std::int64_t block) const { return block / in_group; }
  /// Of the first of its heads, and how many there are.
  std::int64_t first_head(std::int64_t block) const {
    return group_of(block) * group_heads + block % in_group * kBlockHeads;
  }
  std::int64_t heads_of(std::int64_t block) const {
    return std::min(kBlockHeads, group_heads - block % in_group * kBlockHeads);
  }

  std::int64_t group_heads, in_group, count, most_heads;
};

/// A head's frozen numbers.
struct Head {
  float rate;  ///< -A = e^a_log
  float bias;
  float passed;  ///< d
};

/// Of each head.
std::vector<Head> read_heads(const StateSpaceNumbers& numbers);

/// A chunk's steps for one head, per token.
struct Steps : chunked::Decays {
  float step[kChunk];   ///< softplus(dt + bias); 0 for padding
  float decay[kChunk];  ///< e^(step A)
  float slope[kChunk];  ///< of the step by dt
};

/// Reads a head's column dt, rows `stride` apart.
void read_steps(const float* dt, std::int64_t stride, std::int64_t rows, const Head& head, Steps& out);
void read_steps(const vector::Bf16* dt, std::int64_t stride, std::int64_t rows, const Head& head, Steps& out);

/// B and C of a chunk and group, and their products, which all heads of the group share.
struct GroupChunk {
  GroupChunk(Cutter& cutter, const Widths& widths)
      : b(cutter.cut<float>(kChunk * widths.state)),
        c(cutter.cut<float>(kChunk * widths.state)),
        b_lanes(cutter.cut<float>(widths.state * kChunk)),
        scores(cutter.cut<float>(kChunk * kChunk)) {}

  float *b, *c;    // [padded count, state]
  float* b_lanes;  // B^T [state, kChunk]
  float* scores;   // C B^T, lower
};

/// Fills b and c of the chunk, whose first row of xbc is `row`.
template <typename T>
void load_group(const T* row, std::int64_t group, const StateSpaceLayout& layout, std::int64_t count,
                const GroupChunk& chunk) {
  const T* b = row + layout.b_begin() + group * layout.state_dim;
  chunked::load_rows(b, layout.width(), count, layout.state_dim, chunk.b);
  chunked::load_rows(b + layout.groups * layout.state_dim, layout.width(), count, layout.state_dim, chunk.c);
}

/// Fills what is computed of them.
void multiply_group(const Widths& widths, std::int64_t count, const GroupChunk& chunk);

/// state [state, head] = e^G_last state + sum over i of B_i (e^(G_last - G_i) u_i)^T. `fresh`: the state was
/// 0 and isn't read. u: [padded count, head], scaled in place.
void advance_state(const GroupChunk& chunk, const Widths& widths, std::int64_t count, const Steps& steps,
                   bool fresh, float* u, float* state);

}  // namespace lorikeet::ops::cpu::state
