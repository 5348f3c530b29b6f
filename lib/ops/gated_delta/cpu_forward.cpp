// Forward of the gated delta rule by chunks (Yang et al. 2024, arXiv:2406.06484, its WY form; with decays
// arXiv:2412.06464). Unrolled over a chunk that begins with state S, the rule's corrections delta_i are the
// solution of a triangular system, whose right side alone depends on S:
//   delta_i + sum_{j < i} beta_i (k_i . k_j) e^(G_i - G_j) delta_j = beta_i (v_i - e^G_i S^T k_i),
//   out_i = e^G_i S^T q_i + sum_{j <= i} (q_i . k_j) e^(G_i - G_j) delta_j,
//   S <- e^G_last S + sum_j e^(G_last - G_j) k_j delta_j^T.
// The system is solved for delta directly. The papers' W and U allow all chunks to be prepared at once,
// before S is known, at the price of one more product.
#include <algorithm>

#include "ops/gated_delta/chunk.h"
#include "ops/gated_delta/cpu.h"
#include "ops/recurrent_states.h"

namespace lorikeet::ops::cpu {
namespace {

using chunked::kChunk;
using chunked::kStep;
using chunked::padded;
using delta::Gates;
using delta::Widths;

// Chunks of up to this many tokens are computed token by token: a chunk is padded to kStep tokens, and costs
// what about 11 single ones do (Zen 4, heads of 128).
constexpr std::int64_t kFew = 8;

// The scratch of one worker, for `group` value heads of a key head.
struct Buffers {
  Buffers(Cutter& cutter, const Widths& widths, std::int64_t group)
      : chunk(cutter, widths),
        gates(cutter.cut<Gates>(1)),
        decays(cutter.cut<float>(kChunk * kChunk)),
        tile(cutter.cut<float>(kChunk * kChunk)),
        rows(cutter.cut<float>(2 * kChunk * widths.value)),
        states(cutter.cut<float>(group * widths.state())) {}
  delta::KeyChunk chunk;
  Gates* gates;
  float *decays, *tile;  // [kChunk, kChunk]
  float* rows;           // [2 * padded count, value]: q S, which becomes out, then k S, which becomes delta
  float* states;         // [group, key, value]
};

// One token: S <- e^g S + k delta^T with delta = beta (v - e^g S^T k), and out = S^T q with the new S, for
// kStep * vectors columns of S.
template <int vectors>
LORIKEET_INLINE void step_columns(const float* q, const float* k, std::int64_t keys, float query_overlap,
                                  float beta, float decay, std::int64_t stride, const float* v, float* state,
                                  float* out) {
  constexpr std::int64_t kColumns = kStep * vectors;
  float seen[kColumns] = {}, found[kColumns] = {};
  for (std::int64_t i = 0; i < keys; ++i) {
    const float* row = state + i * stride;
    for (std::int64_t j = 0; j < kColumns; ++j) {
      seen[j] += k[i] * row[j];
      found[j] += q[i] * row[j];
    }
  }
  for (std::int64_t j = 0; j < kColumns; ++j) {
    seen[j] = beta * (v[j] - decay * seen[j]);
    out[j] = decay * found[j] + query_overlap * seen[j];
  }
  for (std::int64_t i = 0; i < keys; ++i) {
    float* row = state + i * stride;
    for (std::int64_t j = 0; j < kColumns; ++j) row[j] = decay * row[j] + k[i] * seen[j];
  }
}

LORIKEET_VECTOR_CLONES void step(const float* q, const float* k, const Widths& widths, float beta,
                                 float decay, const float* v, float* state, float* out) {
  float overlap = 0;
  for (std::int64_t i = 0; i < widths.key; ++i) overlap += q[i] * k[i];
  std::int64_t j = 0;
  for (; j + 4 * kStep <= widths.value; j += 4 * kStep) {
    step_columns<4>(q, k, widths.key, overlap, beta, decay, widths.value, v + j, state + j, out + j);
  }
  for (; j < widths.value; j += kStep) {
    step_columns<1>(q, k, widths.key, overlap, beta, decay, widths.value, v + j, state + j, out + j);
  }
}

// A chunk's rows of one value head.
template <typename T>
struct ValueRows {
  const T* v;
  T* out;
  std::int64_t v_stride, out_stride, width;
};

template <typename T>
void run_steps(const ValueRows<T>& value, std::int64_t count, const Widths& widths, const Buffers& b,
               float* state) {
  float *v = b.rows, *out = b.rows + padded(count) * widths.value;
  chunked::load_rows(value.v, value.v_stride, count, value.width, v);
  for (std::int64_t i = 0; i < count; ++i) {
    step(b.chunk.rows + i * widths.key, b.chunk.k(count, widths) + i * widths.key, widths, b.gates->beta[i],
         b.gates->decay[i], v + i * widths.value, state, out + i * widths.value);
  }
  chunked::store_rows(out, /*scale=*/nullptr, count, value.width, value.out, value.out_stride);
}

// `fresh`: the state is 0 and wasn't written. `last`: the state behind the chunk isn't needed.
template <typename T>
void run_chunk(const ValueRows<T>& value, std::int64_t count, const Widths& widths, bool fresh, bool last,
               const Buffers& b, float* state) {
  const std::int64_t rows = padded(count);
  float *out = b.rows, *delta = b.rows + rows * widths.value;
  if (fresh) {
    std::fill(out, out + 2 * rows * widths.value, 0.0F);
  } else {
    chunked::multiply(2 * rows, widths.value, widths.key, chunked::rows_of(b.chunk.rows, widths.key),
                      {state, widths.value}, 0.0F, {out, widths.value});
    chunked::scale_rows(b.gates->from_begin, count, value.width, out);
  }
  delta::subtract_seen(value.v, value.v_stride, *b.gates, count, value.width, delta);
  chunked::decay_tile(*b.gates, count, b.decays);
  delta::system_tile(*b.gates, b.chunk.overlaps, b.decays, count, b.tile);
  chunked::solve_lower(rows, widths.value, {b.tile, kChunk}, {delta, widths.value});
  chunked::times_decays(b.chunk.scores, b.decays, count, b.tile);
  chunked::multiply_lower(rows, widths.value, {b.tile, kChunk}, {delta, widths.value}, 1.0F,
                          {out, widths.value});
  chunked::store_rows(out, /*scale=*/nullptr, count, value.width, value.out, value.out_stride);
  if (!last) delta::advance_state(b.chunk, widths, count, *b.gates, fresh, delta, state);
}

// A sequence's states before it (null: 0) and where those behind it go (null: nowhere), [value_heads,
// key_dim, value_dim].
struct States {
  const float* before;
  float* after;
};

template <typename T>
struct Sequence {
  const T *qkv, *gates;  // of its first token
  T* out;
  std::int64_t length;
  States states;
};

template <typename T>
void run_head(const Sequence<T>& sequence, std::int64_t key_head, const DeltaLayout& layout,
              const delta::Decay* decays, const Buffers& b) {
  const Widths widths(layout);
  const std::int64_t group = layout.value_heads / layout.key_heads, first = key_head * group;
  const std::int64_t size = layout.key_dim * layout.value_dim,
                     out_width = layout.value_heads * layout.value_dim;
  const States& states = sequence.states;
  // Where heads need no padding the states are computed in place.
  const bool in_place = states.after != nullptr && size == widths.state();
  float* const all = in_place ? states.after + first * size : b.states;
  bool fresh = states.before == nullptr;
  if (!fresh) {
    for (std::int64_t i = 0; i < group; ++i) {
      chunked::load_rows(states.before + (first + i) * size, layout.value_dim, layout.key_dim,
                         layout.value_dim, all + i * widths.state());
    }
  }
  for (std::int64_t begin = 0; begin < sequence.length; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, sequence.length - begin);
    const bool few = count <= kFew, last = begin + count == sequence.length && states.after == nullptr;
    delta::load_keys(sequence.qkv + begin * layout.width(), key_head, layout, count, b.chunk);
    if (!few) delta::multiply_keys(widths, count, /*scores=*/true, b.chunk);
    if (few && fresh) std::fill(all, all + group * widths.state(), 0.0F);
    for (std::int64_t i = 0; i < group; ++i) {
      const std::int64_t head = first + i;
      delta::read_gates(sequence.gates + begin * 2 * layout.value_heads, head, layout.value_heads, count,
                        decays[head], *b.gates);
      const ValueRows<T> value{
          .v = sequence.qkv + begin * layout.width() + layout.v_begin() + head * layout.value_dim,
          .out = sequence.out + begin * out_width + head * layout.value_dim,
          .v_stride = layout.width(),
          .out_stride = out_width,
          .width = layout.value_dim};
      float* state = all + i * widths.state();
      if (few) {
        run_steps(value, count, widths, b, state);
      } else {
        run_chunk(value, count, widths, fresh, last, b, state);
      }
    }
    fresh = false;
  }
  if (states.after == nullptr || in_place) return;
  for (std::int64_t i = 0; i < group; ++i) {
    chunked::store_rows(all + i * widths.state(), /*scale=*/nullptr, layout.key_dim, layout.value_dim,
                        states.after + (first + i) * size, layout.value_dim);
  }
}

}  // namespace

void gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                 const DeltaLayout& layout, const Sequences& sequences, std::vector<at::Tensor>* states,
                 at::Tensor& out) {
  const std::vector<std::int64_t> lengths = chunked::lengths_of(sequences);
  const Widths widths(layout);
  const std::int64_t group = layout.value_heads / layout.key_heads;
  Cutter counter(nullptr);
  Buffers(counter, widths, group);
  const Scratch scratch(qkv, counter.bytes());
  std::vector<at::Tensor> before(lengths.size());
  if (states != nullptr)
    before = renew_states(*states, lengths, {layout.value_heads, layout.key_dim, layout.value_dim}, qkv);
  vector::dispatch(qkv, [&]<typename T>(T*) {
    const std::vector<delta::Decay> decays = delta::read_decays(decay);
    for_each_item(lengths, layout.key_heads, [&](std::int64_t worker, const WorkItem& item) {
      const auto s = static_cast<std::size_t>(item.sequence);
      const std::int64_t begin = sequences.cu_seqlens[s];
      auto cutter = scratch.of(worker);
      const Buffers buffers(cutter, widths, group);
      const Sequence<T> sequence{
          .qkv = vector::data<T>(qkv) + begin * layout.width(),
          .gates = vector::data<T>(gates) + begin * 2 * layout.value_heads,
          .out = vector::data<T>(out) + begin * layout.value_heads * layout.value_dim,
          .length = lengths[s],
          .states = {.before = before[s].defined() ? before[s].const_data_ptr<float>() : nullptr,
                     .after = states != nullptr ? (*states)[s].mutable_data_ptr<float>() : nullptr}};
      run_head(sequence, item.kv_head, layout, decays.data(), buffers);
    });
  });
}

}  // namespace lorikeet::ops::cpu
