// Backward of the gated delta rule by chunks, in the form that cpu_forward.cpp has (Yang et al. 2024,
// arXiv:2406.06484; arXiv:2412.06464). With the state S at a chunk's begin, D_ij = e^(G_i - G_j) for i >= j,
// P = q k^T * D and A_ij = beta_i k_i.k_j D_ij for i > j, forward was
//   (1 + A) delta = beta (v - e^G k S),  out = e^G q S + P delta,
//   S' = e^G_last S + k^T (e^(G_last - G) delta).
// From dout and the gradient dS' of the state behind the chunk, with h = -beta e^G r:
//   d_delta = P^T dout + e^(G_last - G) k dS',        (1 + A^T) r = d_delta,
//   dS = e^G_last dS' + q^T (e^G dout) + k^T h,
//   dv = beta r,   db_i = (1 - beta_i) r_i.delta_i  (as beta_i dbeta_i = r_i.delta_i),
//   M = tril(dout delta^T) * D,   N_ij = -beta_i (r_i.delta_j) D_ij for i > j,
//   dq = (e^G dout) S^T + M k,    dk = M^T q + (N + N^T) k + h S^T + e^(G_last - G) delta dS'^T,
// where M and N are the gradients of q k^T and k k^T, summed over the value heads of a key head before they
// are multiplied. Each exponential gives its exponent the product of its value and gradient:
//   dG_i += q_i.((e^G dout) S^T)_i + k_i.(h S^T)_i - z_i,   z_i = k_i.(e^(G_last - G) delta dS'^T)_i,
//   dG_i += x_ij, dG_j -= x_ij for i > j,                   x = M * (q k^T) + N * (k k^T),
//   dG_last += e^G_last <S, dS'> + sum_i z_i;
// then dg_t = sum_{i >= t} dG_i, and da = dg_t (-e^a_log sigmoid(a + dt_bias)). For q = s x / |x|, where
// |x|^2 has 1e-6 added: dx = (s dq - q (q.dq) / s) / |x|.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/gated_delta/backward_terms.h"
#include "ops/gated_delta/chunk.h"
#include "ops/gated_delta/cpu.h"

namespace lorikeet::ops::cpu {
namespace {

using chunked::kChunk;
using chunked::padded;
using chunked::Result;
using chunked::Right;
using delta::Gates;
using delta::Widths;

// The scratch of one worker, for `group` value heads of a key head and sequences of at most `chunks`.
struct Buffers {
  Buffers(Cutter& cutter, const Widths& widths, std::int64_t group, std::int64_t chunks)
      : chunk(cutter, widths),
        gates(cutter.cut<Gates>(1)),
        sums(cutter.cut<delta::GateSums>(1)),
        decays(cutter.cut<float>(kChunk * kChunk)),
        tile(cutter.cut<float>(kChunk * kChunk)),
        dout_products(cutter.cut<float>(kChunk * kChunk)),
        r_products(cutter.cut<float>(kChunk * kChunk)),
        d_scores(cutter.cut<float>(kChunk * kChunk)),
        d_overlaps(cutter.cut<float>(kChunk * kChunk)),
        dout(cutter.cut<float>(kChunk * widths.value)),
        r(cutter.cut<float>(kChunk * widths.value)),
        upstream(cutter.cut<float>(2 * kChunk * widths.value)),
        from_begin(cutter.cut<float>(2 * kChunk * widths.key)),
        to_end(cutter.cut<float>(kChunk * widths.key)),
        d_rows(cutter.cut<float>(2 * kChunk * widths.key)),
        d_state_lanes(cutter.cut<float>(widths.state())),
        states(cutter.cut<float>(group * widths.state())),
        kept_states(cutter.cut<float>(chunks * group * widths.state())),
        kept_deltas(cutter.cut<float>(chunks * group * widths.value * kChunk)) {}
  delta::KeyChunk chunk;
  Gates* gates;
  delta::GateSums* sums;
  float *decays, *tile;               // [kChunk, kChunk]; tile: -A, then P, of one head
  float *dout_products, *r_products;  // dout delta^T and r delta^T, lower, of one head
  float *d_scores, *d_overlaps;       // M and N, summed over heads
  float *dout, *r;                    // [padded count, value]; r is d_delta at first
  float* upstream;                    // [2 * padded count, value]: e^G dout, then h
  float* from_begin;                  // upstream S^T
  float* to_end;                      // delta dS'^T
  float* d_rows;                      // [2 * padded count, key]: dq and dk of the normed heads
  float* d_state_lanes;               // dS'^T of one head
  float* states;                      // [group, key, value]: S in the sweep forward, dS' in that back
  float* kept_states;                 // S^T at the begin of each chunk, for each value head
  float* kept_deltas;                 // delta^T [value, kChunk], likewise
};

// One sequence and key head.
template <typename T>
struct Item {
  const T *qkv, *gates, *dout;  // of the sequence's first token
  T *d_qkv, *d_gates;
  std::int64_t length, key_head;
};

// What all passes over an item know.
struct Plan {
  explicit Plan(const DeltaLayout& of)
      : layout(of),
        widths(of),
        group(of.value_heads / of.key_heads),
        out_width(of.value_heads * of.value_dim) {}
  DeltaLayout layout;
  Widths widths;
  std::int64_t group, out_width;
  std::vector<delta::Decay> decays;

  std::int64_t v_at(std::int64_t head) const { return layout.v_begin() + head * layout.value_dim; }
};

template <typename T>
void read_chunk_gates(const Item<T>& item, std::int64_t begin, std::int64_t count, std::int64_t head,
                      const Plan& plan, Gates& out) {
  const std::int64_t heads = plan.layout.value_heads;
  delta::read_gates(item.gates + begin * 2 * heads, head, heads, count,
                    plan.decays[static_cast<std::size_t>(head)], out);
}

// The tiles of the chunk's system for a head whose gates are read.
void fill_system(std::int64_t count, const Buffers& b) {
  chunked::decay_tile(*b.gates, count, b.decays);
  delta::system_tile(*b.gates, b.chunk.overlaps, b.decays, count, b.tile);
}

// Forward again, without its result: keeps S^T and delta^T of each chunk.
template <typename T>
void sweep_forward(const Item<T>& item, const Plan& plan, const Buffers& b) {
  const Widths& widths = plan.widths;
  for (std::int64_t begin = 0, kept = 0; begin < item.length; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, item.length - begin), rows = padded(count);
    const T* row = item.qkv + begin * plan.layout.width();
    delta::load_keys(row, item.key_head, plan.layout, count, b.chunk);
    delta::multiply_keys(widths, count, /*scores=*/false, b.chunk);
    for (std::int64_t i = 0; i < plan.group; ++i, ++kept) {
      const std::int64_t head = item.key_head * plan.group + i;
      float* state = b.states + i * widths.state();
      read_chunk_gates(item, begin, count, head, plan, *b.gates);
      if (begin == 0) {
        std::fill(b.r, b.r + rows * widths.value, 0.0F);
      } else {
        chunked::transpose(widths.key, widths.value, {state, widths.value},
                           {b.kept_states + kept * widths.state(), widths.key});
        chunked::multiply(rows, widths.value, widths.key,
                          chunked::rows_of(b.chunk.k(count, widths), widths.key), {state, widths.value}, 0.0F,
                          {b.r, widths.value});
      }
      delta::subtract_seen(row + plan.v_at(head), plan.layout.width(), *b.gates, count, plan.layout.value_dim,
                           b.r);
      fill_system(count, b);
      chunked::solve_lower(rows, widths.value, {b.tile, kChunk}, {b.r, widths.value});
      chunked::transpose(rows, widths.value, {b.r, widths.value},
                         {b.kept_deltas + kept * widths.value * kChunk, kChunk});
      if (begin + count == item.length) continue;
      delta::advance_state(b.chunk, widths, count, *b.gates, begin == 0, b.r, state);
    }
  }
}

// One value head of a chunk whose keys and gates are loaded: r, dv, what it adds to dq and dk, and its gates'
// gradients. `first` and `last`: the chunk is its sequence's, so that S or dS' is 0.
struct ChunkHead {
  std::int64_t count;
  bool first, last;
  const float *state_lanes, *delta_lanes;  // S^T and delta^T
  float* d_state;                          // dS', becomes dS
};

void run_chunk(const ChunkHead& c, const Plan& plan, const Buffers& b) {
  const Widths& widths = plan.widths;
  const std::int64_t rows = padded(c.count);
  const Gates& gates = *b.gates;
  const float* k = b.chunk.k(c.count, widths);
  const Right delta_lanes{c.delta_lanes, kChunk};
  fill_system(c.count, b);
  // d_delta, and r in its place.
  if (!c.last) {
    chunked::multiply(rows, widths.value, widths.key, chunked::rows_of(k, widths.key),
                      {c.d_state, widths.value}, 0.0F, {b.r, widths.value});
    chunked::scale_rows(gates.to_end, c.count, widths.value, b.r);
  }
  chunked::times_decays(b.chunk.scores, b.decays, c.count, b.dout_products);
  chunked::multiply_lower_transposed(rows, widths.value, {b.dout_products, kChunk}, {b.dout, widths.value},
                                     c.last ? 0.0F : 1.0F, {b.r, widths.value});
  chunked::solve_lower_transposed(rows, widths.value, {b.tile, kChunk}, {b.r, widths.value});
  // Gradients inside the chunk.
  chunked::multiply_to_lower(rows, widths.value, chunked::rows_of(b.dout, widths.value), delta_lanes,
                             {b.dout_products, kChunk});
  chunked::multiply_to_lower(rows, widths.value, chunked::rows_of(b.r, widths.value), delta_lanes,
                             {b.r_products, kChunk});
  delta::add_tile_gradients({.dout = b.dout_products,
                             .r = b.r_products,
                             .scores = b.chunk.scores,
                             .overlaps = b.chunk.overlaps,
                             .decays = b.decays},
                            gates, c.count, b.d_scores, b.d_overlaps, *b.sums);
  // Through the states at the chunk's begin and end.
  delta::scale_upstream(b.dout, b.r, gates, c.count, widths.value, b.upstream);
  if (c.first) {
    std::fill(b.from_begin, b.from_begin + 2 * rows * widths.key, 0.0F);
  } else {
    chunked::multiply(2 * rows, widths.key, widths.value, chunked::rows_of(b.upstream, widths.value),
                      {c.state_lanes, widths.key}, 0.0F, {b.from_begin, widths.key});
  }
  if (c.last) {
    std::fill(b.to_end, b.to_end + rows * widths.key, 0.0F);
  } else {
    chunked::transpose(widths.key, widths.value, {c.d_state, widths.value}, {b.d_state_lanes, widths.key});
    chunked::multiply(rows, widths.key, widths.value, chunked::columns_of(c.delta_lanes, kChunk),
                      {b.d_state_lanes, widths.key}, 0.0F, {b.to_end, widths.key});
  }
  delta::add_state_gradients(b.chunk.rows, b.from_begin, b.to_end, gates, c.count, widths.key, b.d_rows,
                             *b.sums);
  if (c.first) return;
  if (!c.last) {
    b.sums->whole += static_cast<double>(gates.whole) *
                     chunked::inner_product(c.state_lanes, b.d_state_lanes, widths.state());
  }
  chunked::multiply(widths.key, widths.value, 2 * rows, chunked::columns_of(b.chunk.rows, widths.key),
                    {b.upstream, widths.value}, c.last ? 0.0F : gates.whole, {c.d_state, widths.value});
}

// What M and N, summed over heads, add to dq and dk.
void add_products_of_tiles(std::int64_t count, const Widths& widths, const Buffers& b) {
  const std::int64_t rows = padded(count);
  const Right q{b.chunk.rows, widths.key}, k{b.chunk.k(count, widths), widths.key};
  const Result dq{b.d_rows, widths.key}, dk{b.d_rows + rows * widths.key, widths.key};
  chunked::multiply_lower(rows, widths.key, {b.d_scores, kChunk}, k, 1.0F, dq);
  chunked::multiply_lower_transposed(rows, widths.key, {b.d_scores, kChunk}, q, 1.0F, dk);
  chunked::multiply_lower(rows, widths.key, {b.d_overlaps, kChunk}, k, 1.0F, dk);
  chunked::multiply_lower_transposed(rows, widths.key, {b.d_overlaps, kChunk}, k, 1.0F, dk);
}

// The chunks in reverse.
template <typename T>
void sweep_back(const Item<T>& item, const Plan& plan, const Buffers& b) {
  const DeltaLayout& layout = plan.layout;
  const Widths& widths = plan.widths;
  const std::int64_t chunks = (item.length + kChunk - 1) / kChunk;
  for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = chunk * kChunk, count = std::min(kChunk, item.length - begin);
    const std::int64_t rows = padded(count);
    const T* row = item.qkv + begin * layout.width();
    T* d_row = item.d_qkv + begin * layout.width();
    delta::load_keys(row, item.key_head, layout, count, b.chunk);
    delta::multiply_keys(widths, count, /*scores=*/true, b.chunk);
    std::fill(b.d_rows, b.d_rows + 2 * rows * widths.key, 0.0F);
    std::fill(b.d_scores, b.d_scores + kChunk * kChunk, 0.0F);
    std::fill(b.d_overlaps, b.d_overlaps + kChunk * kChunk, 0.0F);
    for (std::int64_t i = 0; i < plan.group; ++i) {
      const std::int64_t head = item.key_head * plan.group + i, kept = chunk * plan.group + i;
      read_chunk_gates(item, begin, count, head, plan, *b.gates);
      chunked::load_rows(item.dout + begin * plan.out_width + head * layout.value_dim, plan.out_width, count,
                         layout.value_dim, b.dout);
      *b.sums = {};
      run_chunk({.count = count,
                 .first = chunk == 0,
                 .last = chunk == chunks - 1,
                 .state_lanes = b.kept_states + kept * widths.state(),
                 .delta_lanes = b.kept_deltas + kept * widths.value * kChunk,
                 .d_state = b.states + i * widths.state()},
                plan, b);
      chunked::store_rows(b.r, b.gates->beta, count, layout.value_dim, d_row + plan.v_at(head),
                          layout.width());
      delta::store_gate_gradients(*b.gates, *b.sums, count,
                                  item.d_gates + begin * 2 * layout.value_heads + head, layout.value_heads);
    }
    add_products_of_tiles(count, widths, b);
    T* dq = d_row + item.key_head * layout.key_dim;
    delta::store_unit_gradients(b.chunk.rows, b.d_rows, b.chunk.inverse_q, delta::query_scale(layout), count,
                                layout.key_dim, dq, layout.width());
    delta::store_unit_gradients(b.chunk.k(count, widths), b.d_rows + rows * widths.key, b.chunk.inverse_k,
                                1.0F, count, layout.key_dim, dq + layout.k_begin(), layout.width());
  }
}

}  // namespace

void gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                          const DeltaDecay& decay, const DeltaLayout& layout, const Sequences& sequences,
                          DeltaGradients& gradients) {
  const std::vector<std::int64_t> lengths = chunked::lengths_of(sequences);
  const std::int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  Plan plan(layout);
  const auto buffers = [&](Cutter& cutter) {
    return Buffers(cutter, plan.widths, plan.group, (longest + kChunk - 1) / kChunk);
  };
  Cutter counter(nullptr);
  buffers(counter);
  const Scratch scratch(qkv, counter.bytes());
  vector::dispatch(qkv, [&]<typename T>(T*) {
    plan.decays = delta::read_decays(decay);
    for_each_item(lengths, layout.key_heads, [&](std::int64_t worker, const WorkItem& work) {
      const auto s = static_cast<std::size_t>(work.sequence);
      const std::int64_t begin = sequences.cu_seqlens[s];
      auto cutter = scratch.of(worker);
      const Buffers b = buffers(cutter);
      const Item<T> item{.qkv = vector::data<T>(qkv) + begin * layout.width(),
                         .gates = vector::data<T>(gates) + begin * 2 * layout.value_heads,
                         .dout = vector::data<T>(dout) + begin * plan.out_width,
                         .d_qkv = vector::data<T>(gradients.qkv) + begin * layout.width(),
                         .d_gates = vector::data<T>(gradients.gates) + begin * 2 * layout.value_heads,
                         .length = lengths[s],
                         .key_head = work.kv_head};
      sweep_forward(item, plan, b);
      sweep_back(item, plan, b);
    });
  });
}

}  // namespace lorikeet::ops::cpu
