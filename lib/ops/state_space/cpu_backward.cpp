// Backward of the state space by chunks, in the form that cpu_forward.cpp has (Dao and Gu 2024,
// arXiv:2405.21060). From dout and the gradient dS' of the state behind the chunk, with u_j = step_j x_j and
// D_ij = e^(G_i - G_j) for i >= j:
//   du = (C B^T * D)^T dout + e^(G_last - G) B dS',     dx = step du + d dout,
//   dS = e^G_last dS' + C^T (e^G dout),
//   P = (dout u^T) * D,   dC = P B + (e^G dout) S^T,    dB = P^T C + (e^(G_last - G) u) dS'^T,
// where P, the gradient of C B^T, is summed over heads before it is multiplied, and dB and dC are summed over
// the heads of a group. Each exponential gives its exponent the product of its value and gradient:
//   dG_i += C_i.((e^G dout) S^T)_i - z_i,               z_i = u_i.(e^(G_last - G) B dS')_i,
//   dG_i += x_ij, dG_j -= x_ij for i > j,               x = P * (C B^T),
//   dG_last += e^G_last <S, dS'> + sum_i z_i;
// then dg_t = sum_{i >= t} dG_i, dstep = x.du + A dg, and ddt = dstep sigmoid(dt + dt_bias).
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/state_space/backward_terms.h"
#include "ops/state_space/chunk.h"
#include "ops/state_space/cpu.h"

namespace lorikeet::ops::cpu {
namespace {

using state::Blocks;
using state::kChunk;
using state::padded;
using state::Steps;
using state::StepSums;
using state::Widths;

// The scratch of one worker, for sequences of at most `chunks`.
struct Buffers {
  Buffers(Cutter& cutter, const Widths& widths, std::int64_t heads, std::int64_t chunks)
      : chunk(cutter, widths),
        steps(cutter.cut<Steps>(1)),
        sums(cutter.cut<StepSums>(1)),
        decays(cutter.cut<float>(kChunk * kChunk)),
        tile(cutter.cut<float>(kChunk * kChunk)),
        d_scores(cutter.cut<float>(kChunk * kChunk)),
        x(cutter.cut<float>(kChunk * widths.head)),
        u(cutter.cut<float>(kChunk * widths.head)),
        u_lanes(cutter.cut<float>(kChunk * widths.head)),
        dout(cutter.cut<float>(kChunk * widths.head)),
        du(cutter.cut<float>(kChunk * widths.head)),
        db(cutter.cut<float>(kChunk * widths.state)),
        dc(cutter.cut<float>(kChunk * widths.state)),
        terms(cutter.cut<float>(kChunk * widths.state)),
        d_state_lanes(cutter.cut<float>(widths.elements())),
        states(cutter.cut<float>(heads * widths.elements())),
        kept_states(cutter.cut<float>(chunks * heads * widths.elements())) {}
  state::GroupChunk chunk;
  Steps* steps;
  StepSums* sums;
  float *decays, *tile;    // [kChunk, kChunk]; tile: C B^T * D, then dout u^T, of one head
  float* d_scores;         // P, summed over heads
  float *x, *u;            // [padded count, head]
  float* u_lanes;          // u^T [head, kChunk]
  float *dout, *du;        // [padded count, head]
  float *db, *dc, *terms;  // [padded count, state]
  float* d_state_lanes;    // dS'^T [head, state] of one head
  float* states;           // [heads, state, head]: S in the sweep forward, dS' in that back
  float* kept_states;      // S^T at the begin of each chunk, for each head
};

// One sequence and block of heads.
template <typename T>
struct Item {
  const T *xbc, *dt, *dout;  // of the sequence's first token
  std::int64_t dt_stride, ddt_stride;
  T *dxbc, *ddt;
  std::int64_t length, block;
  float *db, *dc;  // [length, state_dim], dense: the block's parts
};

// What all passes over an item know.
struct Plan {
  explicit Plan(const StateSpaceLayout& of) : layout(of), widths(of), blocks(of) {}
  StateSpaceLayout layout;
  Widths widths;
  Blocks blocks;
  std::vector<state::Head> heads;

  const state::Head& head(std::int64_t h) const { return heads[static_cast<std::size_t>(h)]; }
};

// A head's x and u of a chunk, and its steps.
template <typename T>
void load_head(const Item<T>& item, std::int64_t begin, std::int64_t count, std::int64_t head,
               const Plan& plan, const Buffers& b) {
  const StateSpaceLayout& layout = plan.layout;
  state::read_steps(item.dt + begin * item.dt_stride + head, item.dt_stride, count, plan.head(head),
                    *b.steps);
  chunked::load_rows(item.xbc + begin * layout.width() + head * layout.head_dim, layout.width(), count,
                     layout.head_dim, b.x);
  std::copy_n(b.x, padded(count) * plan.widths.head, b.u);
  chunked::scale_rows(b.steps->step, count, plan.widths.head, b.u);
}

// Forward again, without its result: keeps S^T of each chunk but the first.
template <typename T>
void sweep_forward(const Item<T>& item, const Plan& plan, const Buffers& b) {
  const Widths& widths = plan.widths;
  const std::int64_t first = plan.blocks.first_head(item.block), heads = plan.blocks.heads_of(item.block);
  std::int64_t kept = heads;
  for (std::int64_t begin = 0; begin + kChunk < item.length; begin += kChunk) {
    state::load_group(item.xbc + begin * plan.layout.width(), plan.blocks.group_of(item.block), plan.layout,
                      kChunk, b.chunk);
    for (std::int64_t i = 0; i < heads; ++i, ++kept) {
      float* const state = b.states + i * widths.elements();
      load_head(item, begin, kChunk, first + i, plan, b);
      state::advance_state(b.chunk, widths, kChunk, *b.steps, begin == 0, b.u, state);
      chunked::transpose(widths.state, widths.head, {state, widths.head},
                         {b.kept_states + kept * widths.elements(), widths.state});
    }
  }
}

// One head of a chunk whose B, C, x, u, dout and steps are loaded: du, dx in its place, what it adds to dB
// and dC, and its decays' gradients. `first` and `last`: the chunk is its sequence's, so that S or dS' is 0.
struct ChunkHead {
  std::int64_t count;
  bool first, last;
  float passed;
  const float* state_lanes;  // S^T
  float* d_state;            // dS', becomes dS
};

void run_chunk(const ChunkHead& c, const Plan& plan, const Buffers& b) {
  const Widths& widths = plan.widths;
  const std::int64_t rows = padded(c.count), head = widths.head, of_state = widths.state;
  const Steps& steps = *b.steps;
  StepSums& sums = *b.sums;
  sums = {};
  if (!c.last) {
    chunked::multiply(rows, head, of_state, chunked::rows_of(b.chunk.b, of_state), {c.d_state, head}, 0.0F,
                      {b.du, head});
    state::scale_tail(b.x, steps, c.count, head, b.du, sums);
  }
  chunked::decay_tile(steps, c.count, b.decays);
  chunked::times_decays(b.chunk.scores, b.decays, c.count, b.tile);
  chunked::multiply_lower_transposed(rows, head, {b.tile, kChunk}, {b.dout, head}, c.last ? 0.0F : 1.0F,
                                     {b.du, head});
  chunked::transpose(rows, head, {b.u, head}, {b.u_lanes, kChunk});
  chunked::multiply_to_lower(rows, head, chunked::rows_of(b.dout, head), {b.u_lanes, kChunk},
                             {b.tile, kChunk});
  state::add_tile_gradients(b.tile, b.chunk.scores, b.decays, c.count, b.d_scores, sums);
  state::finish_rows(b.x, b.dout, steps, c.passed, c.count, head, b.du, sums);
  // Through the states at the chunk's begin and end.
  if (!c.last) {
    chunked::transpose(of_state, head, {c.d_state, head}, {b.d_state_lanes, of_state});
    chunked::scale_rows(steps.to_end, c.count, head, b.u);
    chunked::multiply(rows, of_state, head, chunked::rows_of(b.u, head), {b.d_state_lanes, of_state}, 1.0F,
                      {b.db, of_state});
  }
  if (c.first) return;
  chunked::scale_rows(steps.from_begin, c.count, head, b.dout);
  chunked::multiply(rows, of_state, head, chunked::rows_of(b.dout, head), {c.state_lanes, of_state}, 0.0F,
                    {b.terms, of_state});
  state::add_state_terms(b.chunk.c, b.terms, c.count, of_state, b.dc, sums);
  if (!c.last) {
    sums.whole += static_cast<double>(steps.whole) *
                  chunked::inner_product(c.state_lanes, b.d_state_lanes, widths.elements());
  }
  chunked::multiply(of_state, head, rows, chunked::columns_of(b.chunk.c, of_state), {b.dout, head},
                    c.last ? 0.0F : steps.whole, {c.d_state, head});
}

// The chunks in reverse.
template <typename T>
void sweep_back(const Item<T>& item, const Plan& plan, const Buffers& b) {
  const StateSpaceLayout& layout = plan.layout;
  const Widths& widths = plan.widths;
  const std::int64_t first = plan.blocks.first_head(item.block), heads = plan.blocks.heads_of(item.block);
  const std::int64_t chunks = (item.length + kChunk - 1) / kChunk, out_width = layout.b_begin();
  for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = chunk * kChunk, count = std::min(kChunk, item.length - begin);
    const std::int64_t rows = padded(count);
    state::load_group(item.xbc + begin * layout.width(), plan.blocks.group_of(item.block), layout, count,
                      b.chunk);
    state::multiply_group(widths, count, b.chunk);
    std::fill(b.d_scores, b.d_scores + kChunk * kChunk, 0.0F);
    std::fill(b.db, b.db + rows * widths.state, 0.0F);
    std::fill(b.dc, b.dc + rows * widths.state, 0.0F);
    for (std::int64_t i = 0; i < heads; ++i) {
      const std::int64_t head = first + i;
      load_head(item, begin, count, head, plan, b);
      chunked::load_rows(item.dout + begin * out_width + head * layout.head_dim, out_width, count,
                         layout.head_dim, b.dout);
      run_chunk({.count = count,
                 .first = chunk == 0,
                 .last = chunk == chunks - 1,
                 .passed = plan.head(head).passed,
                 .state_lanes = b.kept_states + (chunk * heads + i) * widths.elements(),
                 .d_state = b.states + i * widths.elements()},
                plan, b);
      chunked::store_rows(b.du, nullptr, count, layout.head_dim,
                          item.dxbc + begin * layout.width() + head * layout.head_dim, layout.width());
      state::store_step_gradients(*b.steps, plan.head(head), *b.sums, count,
                                  item.ddt + begin * item.ddt_stride + head, item.ddt_stride);
    }
    chunked::multiply_lower(rows, widths.state, {b.d_scores, kChunk}, {b.chunk.b, widths.state}, 1.0F,
                            {b.dc, widths.state});
    chunked::multiply_lower_transposed(rows, widths.state, {b.d_scores, kChunk}, {b.chunk.c, widths.state},
                                       1.0F, {b.db, widths.state});
    for (const auto& [from, to] : {std::pair(b.db, item.db), std::pair(b.dc, item.dc)}) {
      chunked::store_rows(from, nullptr, count, layout.state_dim, to + begin * layout.state_dim,
                          layout.state_dim);
    }
  }
}

// Parts of dB and dC of all blocks of heads, [block, dB or dC, tokens, state_dim], summed up in dxbc.
template <typename T>
void sum_blocks(const float* parts, std::int64_t tokens, const Plan& plan, T* dxbc) {
  constexpr std::int64_t kRows = 64;  // that a thread takes at a time
  const StateSpaceLayout& layout = plan.layout;
  const std::int64_t part = tokens * layout.state_dim;
  at::parallel_for(0, tokens, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = 0; group < layout.groups; ++group) {
      for (std::int64_t of_c = 0; of_c < 2; ++of_c) {
        const std::int64_t first = group * plan.blocks.in_group;
        const std::int64_t column =
            (of_c != 0 ? layout.c_begin() : layout.b_begin()) + group * layout.state_dim;
        state::sum_parts(parts + (first * 2 + of_c) * part + begin * layout.state_dim, plan.blocks.in_group,
                         2 * part, end - begin, layout.state_dim, dxbc + begin * layout.width() + column,
                         layout.width());
      }
    }
  });
}

}  // namespace

void state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                          const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                          const Sequences& sequences, at::Tensor& dxbc, const at::Tensor& ddt) {
  const std::vector<std::int64_t> lengths = chunked::lengths_of(sequences);
  const std::int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  Plan plan(layout);
  const auto buffers = [&](Cutter& cutter) {
    return Buffers(cutter, plan.widths, plan.blocks.most_heads, (longest + kChunk - 1) / kChunk);
  };
  Cutter counter(nullptr);
  buffers(counter);
  const Scratch scratch(xbc, counter.bytes());
  const std::int64_t tokens = xbc.size(0);
  const at::Tensor parts =
      at::empty({plan.blocks.count, 2, tokens, layout.state_dim}, xbc.options().dtype(at::kFloat));
  vector::dispatch(xbc, [&]<typename T>(T*) {
    plan.heads = state::read_heads(numbers);
    for_each_item(lengths, plan.blocks.count, [&](std::int64_t worker, const WorkItem& work) {
      const auto s = static_cast<std::size_t>(work.sequence);
      const std::int64_t begin = sequences.cu_seqlens[s], block = work.kv_head;
      float* const db = parts.data_ptr<float>() + (block * 2 * tokens + begin) * layout.state_dim;
      auto cutter = scratch.of(worker);
      const Buffers b = buffers(cutter);
      const Item<T> item{.xbc = vector::data<T>(xbc) + begin * layout.width(),
                         .dt = vector::data<T>(dt) + begin * dt.stride(0),
                         .dout = vector::data<T>(dout) + begin * layout.b_begin(),
                         .dt_stride = dt.stride(0),
                         .ddt_stride = ddt.stride(0),
                         .dxbc = vector::data<T>(dxbc) + begin * layout.width(),
                         .ddt = vector::data<T>(ddt) + begin * ddt.stride(0),
                         .length = lengths[s],
                         .block = block,
                         .db = db,
                         .dc = db + tokens * layout.state_dim};
      sweep_forward(item, plan, b);
      sweep_back(item, plan, b);
    });
    sum_blocks(parts.const_data_ptr<float>(), tokens, plan, vector::data<T>(dxbc));
  });
}

}  // namespace lorikeet::ops::cpu
