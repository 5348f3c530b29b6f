#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/attention/tiles.h"
#include "ops/chunk_products.h"
#include "ops/chunk_rows.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/vector.h"

// What the CPU's forward and backward of the gated delta rule share: a chunk of tokens (chunk_rows.h) and the
// system of equations that stands for its steps. A padding token has k = v = 0, beta = 0 and g = 0.
namespace lorikeet::ops::cpu::delta {

using chunked::kChunk;
using chunked::padded;

/// Sizes of a head in scratch: multiples of kStep.
struct Widths {
  explicit Widths(const DeltaLayout& layout) : key(padded(layout.key_dim)), value(padded(layout.value_dim)) {}
  std::int64_t key, value;
  std::int64_t state() const { return key * value; }
};

/// A value head's frozen numbers.
struct Decay {
  float rate;  ///< e^a_log
  float bias;
};

/// Of each value head.
std::vector<Decay> read_decays(const DeltaDecay& decay);

/// A chunk's gates for one value head, per token.
struct Gates : chunked::Decays {
  float beta[kChunk];   ///< sigmoid(b)
  float decay[kChunk];  ///< e^g
  float slope[kChunk];  ///< dg / da
};

/// Reads column `head` of b and a in gates [rows, 2 * value_heads].
void read_gates(const float* gates, std::int64_t head, std::int64_t value_heads, std::int64_t rows,
                const Decay& decay, Gates& out);
void read_gates(const vector::Bf16* gates, std::int64_t head, std::int64_t value_heads, std::int64_t rows,
                const Decay& decay, Gates& out);

/// chunked::load_rows with each row x times inverse[row] * scale, where inverse[row] = (sum of x^2 +
/// 1e-6)^-1/2.
void load_unit_rows(const float* in, std::int64_t stride, std::int64_t rows, std::int64_t width, float scale,
                    float* out, float* inverse);
void load_unit_rows(const vector::Bf16* in, std::int64_t stride, std::int64_t rows, std::int64_t width,
                    float scale, float* out, float* inverse);

/// The right side of a chunk's system, in place of k S: x_i = beta_i (v_i - e^G_i x_i), padding 0.
/// v: [rows, width], rows `stride` apart; x: [padded rows, padded width].
void subtract_seen(const float* v, std::int64_t stride, const Gates& gates, std::int64_t rows,
                   std::int64_t width, float* x);
void subtract_seen(const vector::Bf16* v, std::int64_t stride, const Gates& gates, std::int64_t rows,
                   std::int64_t width, float* x);

/// The strictly lower tile [kChunk, kChunk] -beta_i (k_i . k_j) e^(G_i - G_j) of `rows` tokens, from overlaps
/// k_i . k_j and the tile of decays.
void system_tile(const Gates& gates, const float* overlaps, const float* decays, std::int64_t rows,
                 float* system);

/// Queries and keys of a chunk, and their products, which all value heads of the key head share.
struct KeyChunk {
  KeyChunk(Cutter& cutter, const Widths& widths)
      : rows(cutter.cut<float>(2 * kChunk * widths.key)),
        lanes(cutter.cut<float>(widths.key * kChunk)),
        scores(cutter.cut<float>(kChunk * kChunk)),
        overlaps(cutter.cut<float>(kChunk * kChunk)),
        inverse_q(cutter.cut<float>(kChunk)),
        inverse_k(cutter.cut<float>(kChunk)) {}

  float* k(std::int64_t count, const Widths& widths) const { return rows + padded(count) * widths.key; }

  float* rows;                   // [2 * padded count, key]: q / sqrt(key_dim), then k, both normed
  float* lanes;                  // k^T [key, kChunk]
  float *scores, *overlaps;      // q k^T and k k^T, lower
  float *inverse_q, *inverse_k;  // of the norms
};

/// What a normed query is multiplied by.
inline float query_scale(const DeltaLayout& layout) {
  return 1.0F / std::sqrt(static_cast<float>(layout.key_dim));
}

/// Fills q and k of the chunk, whose first row of qkv is `row`.
template <typename T>
void load_keys(const T* row, std::int64_t key_head, const DeltaLayout& layout, std::int64_t count,
               const KeyChunk& chunk) {
  const Widths widths(layout);
  const T* q = row + key_head * layout.key_dim;
  load_unit_rows(q, layout.width(), count, layout.key_dim, query_scale(layout), chunk.rows, chunk.inverse_q);
  load_unit_rows(q + layout.k_begin(), layout.width(), count, layout.key_dim, 1.0F, chunk.k(count, widths),
                 chunk.inverse_k);
}

/// Fills what is computed of them: lanes, overlaps and, where they are needed, scores.
void multiply_keys(const Widths& widths, std::int64_t count, bool scores, const KeyChunk& chunk);

/// state [key, value] = e^G_last state + sum over i of k_i (e^(G_last - G_i) delta_i)^T. `fresh`: the state
/// was 0 and isn't read. Scales delta [padded count, value] in place.
void advance_state(const KeyChunk& chunk, const Widths& widths, std::int64_t count, const Gates& gates,
                   bool fresh, float* delta, float* state);

}  // namespace lorikeet::ops::cpu::delta
