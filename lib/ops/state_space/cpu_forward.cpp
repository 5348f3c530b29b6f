// Forward of the state space by chunks (Dao and Gu 2024, arXiv:2405.21060, section 6). Unrolled over a chunk
// that begins with state S, with u_j = step_j x_j:
//   out_i = e^G_i S^T C_i + sum_{j <= i} (C_i . B_j) e^(G_i - G_j) u_j + d x_i,
//   S <- e^G_last S + sum_j e^(G_last - G_j) B_j u_j^T.
#include <algorithm>

#include "ops/recurrent_states.h"
#include "ops/state_space/chunk.h"
#include "ops/state_space/cpu.h"

namespace lorikeet::ops::cpu {
namespace {

using chunked::kStep;
using state::Blocks;
using state::kChunk;
using state::padded;
using state::Steps;
using state::Widths;

// Chunks of up to this many tokens are computed token by token: a chunk is padded to kStep tokens, and makes
// products of pairs of them.
constexpr std::int64_t kFew = 8;

// The scratch of one worker.
struct Buffers {
  Buffers(Cutter& cutter, const Widths& widths, std::int64_t heads)
      : chunk(cutter, widths),
        steps(cutter.cut<Steps>(1)),
        decays(cutter.cut<float>(kChunk * kChunk)),
        tile(cutter.cut<float>(kChunk * kChunk)),
        x(cutter.cut<float>(kChunk * widths.head)),
        out(cutter.cut<float>(kChunk * widths.head)),
        states(cutter.cut<float>(heads * widths.elements())) {}
  state::GroupChunk chunk;
  Steps* steps;
  float *decays, *tile;  // [kChunk, kChunk]; tile: (C_i . B_j) e^(G_i - G_j)
  float *x, *out;        // [padded count, head]; x becomes u
  float* states;         // [heads, state, head]
};

// One token: S <- e^g S + B u^T, and out = S^T C with the new S, for kStep * vectors columns of S.
template <int vectors>
LORIKEET_INLINE void step_columns(const float* b, const float* c, std::int64_t rows, float step, float decay,
                                  std::int64_t stride, const float* x, float* state, float* out) {
  constexpr std::int64_t kColumns = kStep * vectors;
  float u[kColumns], found[kColumns] = {};
  for (std::int64_t j = 0; j < kColumns; ++j) u[j] = step * x[j];
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = state + i * stride;
    for (std::int64_t j = 0; j < kColumns; ++j) {
      row[j] = decay * row[j] + b[i] * u[j];
      found[j] += c[i] * row[j];
    }
  }
  for (std::int64_t j = 0; j < kColumns; ++j) out[j] = found[j];
}

LORIKEET_VECTOR_CLONES void step(const float* b, const float* c, const Widths& widths, float step,
                                 float decay, const float* x, float* state, float* out) {
  std::int64_t j = 0;
  for (; j + 4 * kStep <= widths.head; j += 4 * kStep)
    step_columns<4>(b, c, widths.state, step, decay, widths.head, x + j, state + j, out + j);
  for (; j < widths.head; j += kStep)
    step_columns<1>(b, c, widths.state, step, decay, widths.head, x + j, state + j, out + j);
}

// out = factors * out + passed * x, rows of `width`.
LORIKEET_VECTOR_CLONES void scale_and_pass(const float* factors, float passed, std::int64_t rows,
                                           std::int64_t width, const float* __restrict__ x,
                                           float* __restrict__ out) {
  for (std::int64_t row = 0; row < padded(rows); ++row) {
    const float factor = factors != nullptr ? factors[row] : 1.0F;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) out[i] = factor * out[i] + passed * x[i];
  }
}

void run_steps(std::int64_t count, const state::Head& head, const Widths& widths, const Buffers& b,
               float* state) {
  for (std::int64_t i = 0; i < count; ++i) {
    step(b.chunk.b + i * widths.state, b.chunk.c + i * widths.state, widths, b.steps->step[i],
         b.steps->decay[i], b.x + i * widths.head, state, b.out + i * widths.head);
  }
  scale_and_pass(nullptr, head.passed, count, widths.head, b.x, b.out);
}

// `fresh`: the state is 0 and wasn't written. `last`: the state behind the chunk isn't needed.
void run_chunk(std::int64_t count, const state::Head& head, const Widths& widths, bool fresh, bool last,
               const Buffers& b, float* state) {
  const std::int64_t rows = padded(count);
  if (fresh) {
    std::fill(b.out, b.out + rows * widths.head, 0.0F);
  } else {
    chunked::multiply(rows, widths.head, widths.state, chunked::rows_of(b.chunk.c, widths.state),
                      {state, widths.head}, 0.0F, {b.out, widths.head});
  }
  scale_and_pass(b.steps->from_begin, head.passed, count, widths.head, b.x, b.out);
  chunked::decay_tile(*b.steps, count, b.decays);
  chunked::times_decays(b.chunk.scores, b.decays, count, b.tile);
  chunked::scale_rows(b.steps->step, count, widths.head, b.x);
  chunked::multiply_lower(rows, widths.head, {b.tile, kChunk}, {b.x, widths.head}, 1.0F,
                          {b.out, widths.head});
  if (!last) state::advance_state(b.chunk, widths, count, *b.steps, fresh, b.x, state);
}

// A sequence, and its states before it (null: 0) and where those behind it go (null: nowhere), [heads,
// state_dim, head_dim].
template <typename T>
struct Sequence {
  const T *xbc, *dt;  // of its first token
  std::int64_t dt_stride;
  T* out;
  std::int64_t length;
  const float* before;
  float* after;
};

template <typename T>
void run_block(const Sequence<T>& sequence, std::int64_t block, const StateSpaceLayout& layout,
               const state::Head* heads, const Buffers& b) {
  const Widths widths(layout);
  const Blocks blocks(layout);
  const std::int64_t first = blocks.first_head(block), count_heads = blocks.heads_of(block);
  const std::int64_t size = layout.state_dim * layout.head_dim, out_width = layout.b_begin();
  // Where heads need no padding the states are computed in place.
  const bool in_place = sequence.after != nullptr && size == widths.elements();
  float* const states = in_place ? sequence.after + first * size : b.states;
  bool fresh = sequence.before == nullptr;
  if (!fresh) {
    for (std::int64_t i = 0; i < count_heads; ++i)
      chunked::load_rows(sequence.before + (first + i) * size, layout.head_dim, layout.state_dim,
                         layout.head_dim, states + i * widths.elements());
  }
  for (std::int64_t begin = 0; begin < sequence.length; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, sequence.length - begin);
    const bool few = count <= kFew, last = begin + count == sequence.length && sequence.after == nullptr;
    const T* row = sequence.xbc + begin * layout.width();
    state::load_group(row, blocks.group_of(block), layout, count, b.chunk);
    if (!few) state::multiply_group(widths, count, b.chunk);
    if (few && fresh) std::fill(states, states + count_heads * widths.elements(), 0.0F);
    for (std::int64_t i = 0; i < count_heads; ++i) {
      const std::int64_t head = first + i;
      state::read_steps(sequence.dt + begin * sequence.dt_stride + head, sequence.dt_stride, count,
                        heads[head], *b.steps);
      chunked::load_rows(row + head * layout.head_dim, layout.width(), count, layout.head_dim, b.x);
      float* const state = states + i * widths.elements();
      if (few) {
        run_steps(count, heads[head], widths, b, state);
      } else {
        run_chunk(count, heads[head], widths, fresh, last, b, state);
      }
      chunked::store_rows(b.out, nullptr, count, layout.head_dim,
                          sequence.out + begin * out_width + head * layout.head_dim, out_width);
    }
    fresh = false;
  }
  if (sequence.after == nullptr || in_place) return;
  for (std::int64_t i = 0; i < count_heads; ++i)
    chunked::store_rows(states + i * widths.elements(), /*scale=*/nullptr, layout.state_dim, layout.head_dim,
                        sequence.after + (first + i) * size, layout.head_dim);
}

}  // namespace

void state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                 const StateSpaceLayout& layout, const Sequences& sequences, std::vector<at::Tensor>* states,
                 at::Tensor& out) {
  const std::vector<std::int64_t> lengths = chunked::lengths_of(sequences);
  const Widths widths(layout);
  const Blocks blocks(layout);
  Cutter counter(nullptr);
  Buffers(counter, widths, blocks.most_heads);
  const Scratch scratch(xbc, counter.bytes());
  std::vector<at::Tensor> before(lengths.size());
  if (states != nullptr)
    before = renew_states(*states, lengths, {layout.heads, layout.state_dim, layout.head_dim}, xbc);
  vector::dispatch(xbc, [&]<typename T>(T*) {
    const std::vector<state::Head> heads = state::read_heads(numbers);
    for_each_item(lengths, blocks.count, [&](std::int64_t worker, const WorkItem& item) {
      const auto s = static_cast<std::size_t>(item.sequence);
      const std::int64_t begin = sequences.cu_seqlens[s];
      auto cutter = scratch.of(worker);
      const Buffers buffers(cutter, widths, blocks.most_heads);
      const Sequence<T> sequence{
          .xbc = vector::data<T>(xbc) + begin * layout.width(),
          .dt = vector::data<T>(dt) + begin * dt.stride(0),
          .dt_stride = dt.stride(0),
          .out = vector::data<T>(out) + begin * layout.b_begin(),
          .length = lengths[s],
          .before = before[s].defined() ? before[s].const_data_ptr<float>() : nullptr,
          .after = states != nullptr ? (*states)[s].mutable_data_ptr<float>() : nullptr};
      run_block(sequence, item.kv_head, layout, heads.data(), buffers);
    });
  });
}

}  // namespace lorikeet::ops::cpu
