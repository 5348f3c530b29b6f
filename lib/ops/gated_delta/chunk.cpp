#include "ops/gated_delta/chunk.h"

#include <algorithm>
#include <cmath>

#include "ops/vector_log.h"

namespace lorikeet::ops::cpu::delta {
namespace {

using vector::Bf16;
using vector::kLanes;

template <typename T>
LORIKEET_INLINE void read(const T* gates, std::int64_t head, std::int64_t value_heads, std::int64_t rows,
                          const Decay& decay, Gates& out) {
  float b[kChunk] = {}, g[kChunk] = {};
  for (std::int64_t i = 0; i < rows; ++i) {
    b[i] = vector::load(gates[i * 2 * value_heads + head]);
    g[i] = vector::load(gates[i * 2 * value_heads + value_heads + head]) + decay.bias;
  }
  const std::int64_t all = padded(rows);
  for (std::int64_t i = 0; i < all; ++i) {
    out.beta[i] = i < rows ? vector::sigmoid(b[i]) : 0.0F;
    out.slope[i] = -decay.rate * vector::sigmoid(g[i]);
    g[i] = i < rows ? -decay.rate * vector::softplus(g[i]) : 0.0F;
    out.decay[i] = vector::exp(g[i]);
  }
  chunked::sum_decays(g, rows, out);
}

template <typename T>
LORIKEET_INLINE void load_unit(const T* in, std::int64_t stride, std::int64_t rows, std::int64_t width,
                               float scale, float* __restrict__ out, float* __restrict__ inverse) {
  chunked::load_rows(in, stride, rows, width, out);
  const std::int64_t all = padded(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ x = out + row * all;
    float lanes[kLanes] = {};
    for (std::int64_t i = 0; i < all; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
    }
    float sum = 1e-6F;
    for (const float lane : lanes) sum += lane;
    inverse[row] = 1.0F / std::sqrt(sum);
    const float factor = inverse[row] * scale;
    for (std::int64_t i = 0; i < all; ++i) x[i] *= factor;
  }
}

template <typename T>
LORIKEET_INLINE void subtract(const T* v, std::int64_t stride, const Gates& gates, std::int64_t rows,
                              std::int64_t width, float* __restrict__ x) {
  const std::int64_t all = padded(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float beta = gates.beta[row], decay = gates.from_begin[row];
    float* __restrict__ to = x + row * all;
    for (std::int64_t i = 0; i < width; ++i) {
      to[i] = beta * (vector::load(v[row * stride + i]) - decay * to[i]);
    }
  }
}

}  // namespace

std::vector<Decay> read_decays(const DeltaDecay& decay) {
  const at::Tensor a_log = decay.a_log.to(at::kFloat).contiguous();
  const at::Tensor bias = decay.dt_bias.to(at::kFloat).contiguous();
  std::vector<Decay> decays;
  decays.reserve(static_cast<std::size_t>(a_log.numel()));
  for (std::int64_t head = 0; head < a_log.numel(); ++head) {
    decays.push_back({std::exp(a_log.const_data_ptr<float>()[head]), bias.const_data_ptr<float>()[head]});
  }
  return decays;
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define LORIKEET_DELTA_ROWS(T)                                                                              \
  LORIKEET_VECTOR_CLONES void read_gates(const T* gates, std::int64_t head, std::int64_t value_heads,       \
                                         std::int64_t rows, const Decay& decay, Gates& out) {               \
    read(gates, head, value_heads, rows, decay, out);                                                       \
  }                                                                                                         \
  LORIKEET_VECTOR_CLONES void load_unit_rows(const T* in, std::int64_t stride, std::int64_t rows,           \
                                             std::int64_t width, float scale, float* out, float* inverse) { \
    load_unit(in, stride, rows, width, scale, out, inverse);                                                \
  }                                                                                                         \
  LORIKEET_VECTOR_CLONES void subtract_seen(const T* v, std::int64_t stride, const Gates& gates,            \
                                            std::int64_t rows, std::int64_t width, float* x) {              \
    subtract(v, stride, gates, rows, width, x);                                                             \
  }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_DELTA_ROWS(float)
LORIKEET_DELTA_ROWS(Bf16)
#undef LORIKEET_DELTA_ROWS

LORIKEET_VECTOR_CLONES void system_tile(const Gates& gates, const float* __restrict__ overlaps,
                                        const float* __restrict__ decays, std::int64_t rows,
                                        float* __restrict__ system) {
  for (std::int32_t i = 0; i < padded(rows); ++i) {
    const float factor = -gates.beta[i];
    for (std::int32_t j = 0; j < padded(i + 1); ++j) {
      const std::int64_t at = i * kChunk + j;
      system[at] = j < i ? factor * overlaps[at] * decays[at] : 0.0F;
    }
  }
}

void multiply_keys(const Widths& widths, std::int64_t count, bool scores, const KeyChunk& chunk) {
  const std::int64_t rows = padded(count);
  const float* k = chunk.k(count, widths);
  const chunked::Right lanes{chunk.lanes, kChunk};
  chunked::transpose(rows, widths.key, {k, widths.key}, {chunk.lanes, kChunk});
  chunked::multiply_to_lower(rows, widths.key, chunked::rows_of(k, widths.key), lanes,
                             {chunk.overlaps, kChunk});
  if (!scores) return;
  chunked::multiply_to_lower(rows, widths.key, chunked::rows_of(chunk.rows, widths.key), lanes,
                             {chunk.scores, kChunk});
}

void advance_state(const KeyChunk& chunk, const Widths& widths, std::int64_t count, const Gates& gates,
                   bool fresh, float* delta, float* state) {
  chunked::scale_rows(gates.to_end, count, widths.value, delta);
  chunked::multiply(widths.key, widths.value, padded(count),
                    chunked::columns_of(chunk.k(count, widths), widths.key), {delta, widths.value},
                    fresh ? 0.0F : gates.whole, {state, widths.value});
}

}  // namespace lorikeet::ops::cpu::delta
