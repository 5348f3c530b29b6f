// Backward (Dao et al. 2022, arXiv:2205.14135, algorithm 4, in transposed tiles). With P = exp(S - lse),
// D_i = dO_i . O_i and dS = P (dO V^T - D):  dV = P^T dO,  dK = scale dS^T Q,  dQ = scale dS K.
// K, V and their gradients (these in fp32) are held for one sequence and head at a time. Where products are
// of bf16, P and dS are rounded to it for them.
#include "ops/attention/cpu.h"
#include "ops/attention/tiles.h"

#include <ATen/ops/empty.h>

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;

// From q k and dp = dO V^T, both [keys, kTile] transposed: p in place of s, and dS in place of dp.
LORIKEET_VECTOR_CLONES void score_gradients(float* __restrict__ scores, float* __restrict__ dp,
                                            const BlockRange& range, std::int64_t first_key,
                                            std::int64_t rows, const AttentionOptions& options,
                                            const float* __restrict__ lse, const float* __restrict__ dot) {
  const auto scale = static_cast<float>(options.scale), cap = static_cast<float>(options.soft_cap);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    float* __restrict__ g = dp + row * kTile;
    const Lanes seen = lanes_of(first_key + row, range, options.causal, options.window);
    if (cap > 0) {
      for (std::int32_t lane = 0; lane < kTile; ++lane) {
        const float capped = vector::tanh(scale * s[lane] / cap);
        const float all = vector::exp(cap * capped - lse[lane]);
        const float p = lane >= seen.from && lane < seen.to ? all : 0.0F;
        s[lane] = p;
        g[lane] = p * (g[lane] - dot[lane]) * (1.0F - capped * capped);
      }
    } else {
      for (std::int32_t lane = 0; lane < kTile; ++lane) {
        const float all = vector::exp(scale * s[lane] - lse[lane]);
        const float p = lane >= seen.from && lane < seen.to ? all : 0.0F;
        s[lane] = p;
        g[lane] = p * (g[lane] - dot[lane]);
      }
    }
  }
}

// P or dS, [rows, kTile], as products of bf16 read it.
LORIKEET_VECTOR_CLONES void round_tile(const float* __restrict__ in, std::int64_t rows,
                                       Bf16* __restrict__ out) {
  for (std::int64_t i = 0; i < rows * kTile; ++i) vector::store(in[i], out[i]);
}

// dot[row] = dO_row . O_row in fp32; 0 for lanes from `rows` on.
template <typename T, typename E>
LORIKEET_INLINE void row_dots(const E* dout, const T* out, std::int64_t stride, std::int64_t rows,
                              std::int64_t width, float* dot) {
  for (std::int64_t row = 0; row < kTile; ++row) dot[row] = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    float lanes[vector::kLanes] = {};
    std::int64_t i = 0;
    for (; i + vector::kLanes <= width; i += vector::kLanes) {
      for (std::int64_t lane = 0; lane < vector::kLanes; ++lane) {
        lanes[lane] +=
            vector::load(dout[row * width + i + lane]) * vector::load(out[row * stride + i + lane]);
      }
    }
    float total = 0;
    for (; i < width; ++i) total += vector::load(dout[row * width + i]) * vector::load(out[row * stride + i]);
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
LORIKEET_INLINE void store_rows(const float* in, float factor, std::int64_t rows, std::int64_t width,
                                std::int64_t stride, T* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < width; ++i)
      vector::store(in[row * width + i] * factor, out[row * stride + i]);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T and E are types
#define LORIKEET_BACKWARD_DOTS(T, E)                                                                    \
  LORIKEET_VECTOR_CLONES void dots(const E* dout, const T* out, std::int64_t stride, std::int64_t rows, \
                                   std::int64_t width, float* dot) {                                    \
    row_dots(dout, out, stride, rows, width, dot);                                                      \
  }
#define LORIKEET_BACKWARD_STORES(T)                                                                   \
  LORIKEET_VECTOR_CLONES void store_query_gradient(const float* in, float factor, std::int64_t rows,  \
                                                   std::int64_t width, std::int64_t stride, T* out) { \
    store_lanes(in, factor, rows, width, stride, out);                                                \
  }                                                                                                   \
  LORIKEET_VECTOR_CLONES void store_gradient(const float* in, float factor, std::int64_t rows,        \
                                             std::int64_t width, std::int64_t stride, T* out) {       \
    store_rows(in, factor, rows, width, stride, out);                                                 \
  }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_BACKWARD_DOTS(float, float)
LORIKEET_BACKWARD_DOTS(Bf16, float)
LORIKEET_BACKWARD_DOTS(Bf16, Bf16)
LORIKEET_BACKWARD_STORES(float)
LORIKEET_BACKWARD_STORES(Bf16)
#undef LORIKEET_BACKWARD_DOTS
#undef LORIKEET_BACKWARD_STORES

// The scratch of one worker, for sequences of at most `keys`.
template <typename E>
struct Buffers {
  using Right = typename RightOperand<E>::Element;
  static constexpr auto kRows = RightOperand<E>::kRows;

  Buffers(Cutter& cutter, std::int64_t keys, std::int64_t d) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    k = cutter.cut<E>(all * d);
    k_lanes = cutter.cut<E>(all * d);
    v = cutter.cut<E>(all * d);
    dk = cutter.cut<float>(all * d);
    dv = cutter.cut<float>(all * d);
    q = cutter.cut<E>(kTile * d);
    q_lanes = cutter.cut<Right>(kTile * d / kRows);
    go = cutter.cut<E>(kTile * d);
    go_lanes = cutter.cut<Right>(kTile * d / kRows);
    dq_lanes = cutter.cut<float>(kTile * d);
    scores = cutter.cut<float>(kTile * kTile);
    dp = cutter.cut<float>(kTile * kTile);
    lse = cutter.cut<float>(kTile);
    dot = cutter.cut<float>(kTile);
    if constexpr (std::is_same_v<E, float>) {
      q_right = q;
      go_right = go;
      p_left = scores;
      ds_left = ds_right = dp;
    } else {
      q_right = cutter.cut<Right>(kTile * d / kRows);
      go_right = cutter.cut<Right>(kTile * d / kRows);
      p_left = cutter.cut<E>(kTile * kTile);
      ds_left = cutter.cut<E>(kTile * kTile);
      ds_right = cutter.cut<Right>(kTile * kTile / kRows);
    }
  }
  E *k, *v;                   // [keys, D]
  E* k_lanes;                 // tiles [D, kTile]
  float *dk, *dv;             // [keys, D]
  E *q, *go;                  // [kTile, D]: a block of Q and dO
  Right *q_lanes, *go_lanes;  // [D, kTile]
  Right *q_right, *go_right;  // [kTile, D]
  float* dq_lanes;            // [D, kTile]
  float *scores, *dp;         // [kTile keys, kTile]: become P and dS
  E *p_left, *ds_left;        // the same, as operands
  Right* ds_right;
  float *lse, *dot;  // of each lane
};

// Q and dO of a block, which are in q and go, in the orders that the products read.
template <typename E>
void order_block(std::int64_t rows, std::int64_t d, const Buffers<E>& b) {
  transpose_right(b.q, rows, d, b.q_lanes);
  transpose_right(b.go, rows, d, b.go_lanes);
  if constexpr (std::is_same_v<E, Bf16>) {
    pair_rows(b.q, padded(rows), d, b.q_right);
    pair_rows(b.go, padded(rows), d, b.go_right);
  }
}

// One block of queries against all keys that it sees: adds to dv and, without the scale, to dk; leaves
// dq_lanes, without the scale.
template <typename E>
void run_block(const BlockRange& range, std::int64_t rows, std::int64_t d, const AttentionOptions& options,
               const Buffers<E>& b) {
  const auto lanes = padded(rows);
  for (auto first = range.key_begin; first < range.key_end; first += kTile) {
    const auto keys = padded(std::min(kTile, range.key_end - first));
    multiply(keys, lanes, d, b.k + first * d, d, b.q_lanes, kTile, b.scores, kTile, false);
    multiply(keys, lanes, d, b.v + first * d, d, b.go_lanes, kTile, b.dp, kTile, false);
    score_gradients(b.scores, b.dp, range, first, keys, options, b.lse, b.dot);
    if constexpr (std::is_same_v<E, Bf16>) {
      round_tile(b.scores, keys, b.p_left);
      round_tile(b.dp, keys, b.ds_left);
      pair_rows(b.ds_left, keys, kTile, b.ds_right);
    }
    multiply(keys, d, lanes, b.p_left, kTile, b.go_right, d, b.dv + first * d, d, true);
    multiply(keys, d, lanes, b.ds_left, kTile, b.q_right, d, b.dk + first * d, d, true);
    multiply(d, lanes, keys, b.k_lanes + first * d, kTile, b.ds_right, kTile, b.dq_lanes, kTile,
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
  const bool bf16 = multiplies_bf16(qkv, d);
  const Scratch scratch(qkv, bytes_of<Buffers>(bf16, longest, d));
  const auto scale = static_cast<float>(options.scale);
  dispatch(qkv, bf16, [&]<typename T, typename E>(T*, E*) {
    for_each_item(lengths, layout.kv_heads, [&](std::int64_t worker, const WorkItem& item) {
      const std::int64_t begin = sequences.cu_seqlens[static_cast<std::size_t>(item.sequence)];
      const auto length = lengths[static_cast<std::size_t>(item.sequence)], all = padded(length);
      auto cutter = scratch.of(worker);
      const Buffers<E> b(cutter, longest, d);
      const T* rows = vector::data<T>(qkv) + begin * width;
      T* gradient = vector::data<T>(dqkv) + begin * width;
      const auto k_at = layout.k_begin() + item.kv_head * d, v_at = layout.v_begin() + item.kv_head * d;
      load_rows(rows + k_at, width, length, all, d, b.k);
      load_rows(rows + v_at, width, length, all, d, b.v);
      for (std::int64_t tile = 0; tile < length; tile += kTile) {
        transpose_tile(b.k + tile * d, std::min(kTile, length - tile), d, b.k_lanes + tile * d);
      }
      std::fill(b.dk, b.dk + all * d, 0.0F);
      std::fill(b.dv, b.dv + all * d, 0.0F);
      for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
        const T* upstream = vector::data<T>(dout) + begin * out_width + head * d;
        const T* result = vector::data<T>(out) + begin * out_width + head * d;
        for (std::int64_t first = 0; first < length; first += kTile) {
          const auto count = std::min(kTile, length - first);
          load_rows(rows + first * width + head * d, width, count, padded(count), d, b.q);
          load_rows(upstream + first * out_width, out_width, count, padded(count), d, b.go);
          order_block(count, d, b);
          dots(b.go, result + first * out_width, out_width, count, d, b.dot);
          const float* saved = lse.const_data_ptr<float>() + head * qkv.size(0) + begin + first;
          std::fill(b.lse + count, b.lse + kTile, 0.0F);
          std::copy(saved, saved + count, b.lse);
          run_block(block_range(first, count, length, options), count, d, options, b);
          store_query_gradient(b.dq_lanes, scale, count, d, width, gradient + first * width + head * d);
        }
      }
      store_gradient(b.dk, scale, length, d, width, gradient + k_at);
      store_gradient(b.dv, 1.0F, length, d, width, gradient + v_at);
    });
  });
}

}  // namespace lorikeet::ops::cpu
