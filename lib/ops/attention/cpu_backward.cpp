// Backward (Dao et al. 2022, arXiv:2205.14135, algorithm 4, in transposed tiles). With P = exp(S - lse),
// D_i = dO_i . O_i and dS = P (dO V^T - D):  dV = P^T dO,  dK = scale dS^T Q,  dQ = scale dS K.
// K, V and their gradients are held in fp32 for one sequence and head at a time.
#include "ops/attention/cpu.h"
#include "ops/attention/tiles.h"

#include <ATen/ops/empty.h>

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;

// From raw scores s and dp = dO V^T, both [keys, kTile] transposed: p in place of s, and dS in place of dp.
LORIKEET_VECTOR_CLONES void score_gradients(float* __restrict__ scores, float* __restrict__ dp,
                                            const BlockRange& range, std::int64_t first_key,
                                            std::int64_t rows, bool causal, std::int64_t window, float cap,
                                            const float* __restrict__ lse, const float* __restrict__ dot) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    float* __restrict__ g = dp + row * kTile;
    const Lanes seen = lanes_of(first_key + row, range, causal, window);
    if (cap > 0) {
      for (std::int32_t lane = 0; lane < kTile; ++lane) {
        const float capped = vector::tanh(s[lane] / cap);
        const float all = vector::exp(cap * capped - lse[lane]);
        const float p = lane >= seen.from && lane < seen.to ? all : 0.0F;
        s[lane] = p;
        g[lane] = p * (g[lane] - dot[lane]) * (1.0F - capped * capped);
      }
    } else {
      for (std::int32_t lane = 0; lane < kTile; ++lane) {
        const float all = vector::exp(s[lane] - lse[lane]);
        const float p = lane >= seen.from && lane < seen.to ? all : 0.0F;
        s[lane] = p;
        g[lane] = p * (g[lane] - dot[lane]);
      }
    }
  }
}

// dot[row] = dO_row . O_row in fp32; 0 for lanes from `rows` on.
template <typename T>
LORIKEET_INLINE void row_dots(const float* dout, const T* out, std::int64_t stride, std::int64_t rows,
                              std::int64_t width, float* dot) {
  for (std::int64_t row = 0; row < kTile; ++row) dot[row] = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    float lanes[vector::kLanes] = {};
    std::int64_t i = 0;
    for (; i + vector::kLanes <= width; i += vector::kLanes) {
      for (std::int64_t lane = 0; lane < vector::kLanes; ++lane) {
        lanes[lane] += dout[row * width + i + lane] * vector::load(out[row * stride + i + lane]);
      }
    }
    float total = 0;
    for (; i < width; ++i) total += dout[row * width + i] * vector::load(out[row * stride + i]);
    for (const float lane : lanes) total += lane;
    dot[row] = total;
  }
}

template <typename T>
LORIKEET_INLINE void store_lanes(const float* in, float factor, std::int64_t rows, std::int64_t width,
                                 std::int64_t stride, T* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i)
      vector::store(in[i * kTile + row] * factor, out[row * stride + i]);
  }
}

template <typename T>
LORIKEET_INLINE void store_rows(const float* in, std::int64_t rows, std::int64_t width, std::int64_t stride,
                                T* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i) vector::store(in[row * width + i], out[row * stride + i]);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define LORIKEET_BACKWARD_KERNELS(T)                                                                        \
  LORIKEET_VECTOR_CLONES void load_head(const T* in, std::int64_t stride, std::int64_t rows,                \
                                        std::int64_t all, std::int64_t width, float factor, float* out) {   \
    load_rows(in, stride, rows, all, width, factor, out);                                                   \
  }                                                                                                         \
  LORIKEET_VECTOR_CLONES void dots(const float* dout, const T* out, std::int64_t stride, std::int64_t rows, \
                                   std::int64_t width, float* dot) {                                        \
    row_dots(dout, out, stride, rows, width, dot);                                                          \
  }                                                                                                         \
  LORIKEET_VECTOR_CLONES void store_query_gradient(const float* in, float factor, std::int64_t rows,        \
                                                   std::int64_t width, std::int64_t stride, T* out) {       \
    store_lanes(in, factor, rows, width, stride, out);                                                      \
  }                                                                                                         \
  LORIKEET_VECTOR_CLONES void store_gradient(const float* in, std::int64_t rows, std::int64_t width,        \
                                             std::int64_t stride, T* out) {                                 \
    store_rows(in, rows, width, stride, out);                                                               \
  }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_BACKWARD_KERNELS(float)
LORIKEET_BACKWARD_KERNELS(Bf16)
#undef LORIKEET_BACKWARD_KERNELS

LORIKEET_VECTOR_CLONES void transpose(const float* in, std::int64_t rows, std::int64_t width, float* out) {
  transpose_tile(in, rows, width, out);
}

struct Buffers {
  Buffers(float* at, std::int64_t keys, std::int64_t d) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    k = at;                    // [keys, D]
    k_lanes = k + all * d;     // tiles [D, kTile]
    v = k_lanes + all * d;     // [keys, D]
    dk = v + all * d;          // [keys, D]
    dv = dk + all * d;         // [keys, D]
    q = dv + all * d;          // [kTile, D], scaled
    q_lanes = q + kTile * d;   // [D, kTile]
    go = q_lanes + kTile * d;  // [kTile, D]: dO
    go_lanes = go + kTile * d;
    dq_lanes = go_lanes + kTile * d;
    scores = dq_lanes + kTile * d;  // [kTile keys, kTile]
    dp = scores + kTile * kTile;
    lse = dp + kTile * kTile;
    dot = lse + kTile;
  }
  static std::int64_t size(std::int64_t keys, std::int64_t d) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    return 5 * all * d + 5 * kTile * d + 2 * kTile * kTile + 2 * kTile;
  }
  float *k, *k_lanes, *v, *dk, *dv, *q, *q_lanes, *go, *go_lanes, *dq_lanes, *scores, *dp, *lse, *dot;
};

// One block of queries against all keys that it sees: adds to dk and dv, leaves dq_lanes.
void run_block(const BlockRange& range, std::int64_t rows, std::int64_t d, const AttentionOptions& options,
               const Buffers& b) {
  const auto lanes = padded(rows);
  for (auto first = range.key_begin; first < range.key_end; first += kTile) {
    const auto keys = padded(std::min(kTile, range.key_end - first));
    multiply(keys, lanes, d, b.k + first * d, d, b.q_lanes, kTile, b.scores, kTile, false);
    multiply(keys, lanes, d, b.v + first * d, d, b.go_lanes, kTile, b.dp, kTile, false);
    score_gradients(b.scores, b.dp, range, first, keys, options.causal, options.window,
                    static_cast<float>(options.soft_cap), b.lse, b.dot);
    multiply(keys, d, lanes, b.scores, kTile, b.go, d, b.dv + first * d, d, true);
    multiply(keys, d, lanes, b.dp, kTile, b.q, d, b.dk + first * d, d, true);
    multiply(d, lanes, keys, b.k_lanes + first * d, kTile, b.dp, kTile, b.dq_lanes, kTile,
             first > range.key_begin);
  }
}

}  // namespace

void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv) {
  const auto d = layout.head_dim, group = layout.heads / layout.kv_heads, width = layout.width();
  const auto out_width = layout.heads * d;
  std::vector<std::int64_t> lengths;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    lengths.push_back(sequences.cu_seqlens[s + 1] - sequences.cu_seqlens[s]);
  }
  const auto longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const Scratch scratch(qkv, Buffers::size(longest, d));
  const auto scale = static_cast<float>(options.scale);
  vector::dispatch(qkv, [&]<typename T>(T*) {
    for_each_item(lengths, layout.kv_heads, [&](std::int64_t worker, const WorkItem& item) {
      const std::int64_t begin = sequences.cu_seqlens[static_cast<std::size_t>(item.sequence)];
      const auto length = lengths[static_cast<std::size_t>(item.sequence)], all = padded(length);
      const Buffers b(scratch.of(worker), longest, d);
      const T* rows = vector::data<T>(qkv) + begin * width;
      T* gradient = vector::data<T>(dqkv) + begin * width;
      const auto k_at = layout.k_begin() + item.kv_head * d, v_at = layout.v_begin() + item.kv_head * d;
      load_head(rows + k_at, width, length, all, d, 1.0F, b.k);
      load_head(rows + v_at, width, length, all, d, 1.0F, b.v);
      for (std::int64_t tile = 0; tile < length; tile += kTile) {
        transpose(b.k + tile * d, std::min(kTile, length - tile), d, b.k_lanes + tile * d);
      }
      std::fill(b.dk, b.dk + all * d, 0.0F);
      std::fill(b.dv, b.dv + all * d, 0.0F);
      for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
        const T* upstream = vector::data<T>(dout) + begin * out_width + head * d;
        const T* result = vector::data<T>(out) + begin * out_width + head * d;
        for (std::int64_t first = 0; first < length; first += kTile) {
          const auto count = std::min(kTile, length - first);
          load_head(rows + first * width + head * d, width, count, padded(count), d, scale, b.q);
          load_head(upstream + first * out_width, out_width, count, padded(count), d, 1.0F, b.go);
          transpose(b.q, count, d, b.q_lanes);
          transpose(b.go, count, d, b.go_lanes);
          dots(b.go, result + first * out_width, out_width, count, d, b.dot);
          const float* saved = lse.const_data_ptr<float>() + head * qkv.size(0) + begin + first;
          std::fill(b.lse + count, b.lse + kTile, 0.0F);
          std::copy(saved, saved + count, b.lse);
          run_block(block_range(first, count, length, options), count, d, options, b);
          store_query_gradient(b.dq_lanes, scale, count, d, width, gradient + first * width + head * d);
        }
      }
      store_gradient(b.dk, length, d, width, gradient + k_at);
      store_gradient(b.dv, length, d, width, gradient + v_at);
    });
  });
}

}  // namespace lorikeet::ops::cpu
