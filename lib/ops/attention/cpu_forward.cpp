// Forward: for every block of 64 queries all its scores are kept, [keys, 64] fp32, so softmax is exact in two
// passes; nothing is rescaled on the way.
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>

#include "ops/attention/cpu.h"
#include "ops/attention/tiles.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;

constexpr float kLowest = -1e30F;  // below any score, and finite: it may be subtracted from -infinity

// One head's view of a sequence: its queries are the last of its keys' positions.
template <typename T>
struct HeadView {
  const T *q, *k, *v;
  T* out;
  float* lse;  // [queries] or null
  std::int64_t q_stride, k_stride, v_stride, out_stride;
  std::int64_t queries, keys, head_dim;
};

// Turns scores [keys, kTile] into exp(score - max) in place, 0 where hidden; gives each lane's max and sum.
LORIKEET_INLINE void softmax_lanes(float* __restrict__ scores, const BlockRange& range, bool causal,
                                   std::int64_t window, float cap, std::int64_t rows, float* __restrict__ max,
                                   float* __restrict__ sum) {
  for (std::int64_t lane = 0; lane < kTile; ++lane) {
    max[lane] = kLowest;
    sum[lane] = 0;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    const Lanes seen = lanes_of(range.key_begin + row, range, causal, window);
    if (cap > 0) {
      for (std::int64_t lane = 0; lane < kTile; ++lane) s[lane] = cap * vector::tanh(s[lane] / cap);
    }
    for (std::int32_t lane = 0; lane < kTile; ++lane) {
      const float value =
          lane >= seen.from && lane < seen.to ? s[lane] : -std::numeric_limits<float>::infinity();
      s[lane] = value;
      max[lane] = value > max[lane] ? value : max[lane];
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    for (std::int64_t lane = 0; lane < kTile; ++lane) {
      const float p = vector::exp(s[lane] - max[lane]);
      s[lane] = p;
      sum[lane] += p;
    }
  }
}

LORIKEET_VECTOR_CLONES void softmax_block(float* scores, const BlockRange& range, bool causal,
                                          std::int64_t window, float cap, std::int64_t rows, float* max,
                                          float* sum) {
  softmax_lanes(scores, range, causal, window, cap, rows, max, sum);
}

// out rows = (transposed [head_dim, kTile]) / sum.
template <typename T>
LORIKEET_INLINE void store_transposed(const float* in, const float* sum, std::int64_t rows,
                                      std::int64_t width, std::int64_t stride, T* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float factor = 1.0F / sum[row];
    for (std::int64_t i = 0; i < width; ++i)
      vector::store(in[i * kTile + row] * factor, out[row * stride + i]);
  }
}

template <typename T>
LORIKEET_INLINE void load_values(const T* v, std::int64_t stride, std::int64_t keys, std::int64_t width,
                                 float* rows, float* tiles) {
  for (std::int64_t begin = 0; begin < keys; begin += kTile) {
    const auto count = std::min(kTile, keys - begin);
    load_rows(v + begin * stride, stride, count, count, width, 1.0F, rows);
    transpose_tile(rows, count, width, tiles + begin * width);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define LORIKEET_FORWARD_KERNELS(T)                                                                       \
  LORIKEET_VECTOR_CLONES void load_head(const T* in, std::int64_t stride, std::int64_t rows,              \
                                        std::int64_t all, std::int64_t width, float factor, float* out) { \
    load_rows(in, stride, rows, all, width, factor, out);                                                 \
  }                                                                                                       \
  LORIKEET_VECTOR_CLONES void load_value_tiles(const T* v, std::int64_t stride, std::int64_t keys,        \
                                               std::int64_t width, float* rows, float* tiles) {           \
    load_values(v, stride, keys, width, rows, tiles);                                                     \
  }                                                                                                       \
  LORIKEET_VECTOR_CLONES void store_block(const float* in, const float* sum, std::int64_t rows,           \
                                          std::int64_t width, std::int64_t stride, T* out) {              \
    store_transposed(in, sum, rows, width, stride, out);                                                  \
  }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_FORWARD_KERNELS(float)
LORIKEET_FORWARD_KERNELS(Bf16)
#undef LORIKEET_FORWARD_KERNELS

LORIKEET_VECTOR_CLONES void transpose_queries(const float* in, std::int64_t rows, std::int64_t width,
                                              float* out) {
  transpose_tile(in, rows, width, out);
}

// The scratch of one worker, for sequences of at most `keys`.
struct Buffers {
  Buffers(float* at, std::int64_t keys, std::int64_t head_dim) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    k = at;                            // [keys, D]
    v = k + all * head_dim;            // tiles [D, kTile]
    scores = v + all * head_dim;       // [keys, kTile]
    q = scores + all * kTile;          // [kTile, D]
    q_lanes = q + kTile * head_dim;    // [D, kTile]
    out = q_lanes + kTile * head_dim;  // [D, kTile]
    max = out + kTile * head_dim;
    sum = max + kTile;
  }
  static std::int64_t size(std::int64_t keys, std::int64_t head_dim) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    return 2 * all * head_dim + all * kTile + 3 * kTile * head_dim + 2 * kTile;
  }
  float *k, *v, *scores, *q, *q_lanes, *out, *max, *sum;
};

template <typename T>
void load_keys_and_values(const HeadView<T>& head, const Buffers& buffers) {
  load_head(head.k, head.k_stride, head.keys, padded(head.keys), head.head_dim, 1.0F, buffers.k);
  load_value_tiles(head.v, head.v_stride, head.keys, head.head_dim, buffers.q, buffers.v);
}

// All queries of one head, whose keys and values are in the buffers.
template <typename T>
void run_head(const HeadView<T>& head, const AttentionOptions& options, const Buffers& b) {
  const auto d = head.head_dim;
  for (std::int64_t begin = 0; begin < head.queries; begin += kTile) {
    const auto rows = std::min(kTile, head.queries - begin);
    const auto lanes = padded(rows);
    const auto range = block_range(head.keys - head.queries + begin, rows, head.keys, options);
    load_head(head.q + begin * head.q_stride, head.q_stride, rows, rows, d, static_cast<float>(options.scale),
              b.q);
    transpose_queries(b.q, rows, d, b.q_lanes);
    const auto seen = range.key_end - range.key_begin;
    for (std::int64_t tile = 0; tile < seen; tile += kTile) {
      multiply(padded(std::min(kTile, seen - tile)), lanes, d, b.k + (range.key_begin + tile) * d, d,
               b.q_lanes, kTile, b.scores + tile * kTile, kTile, false);
    }
    softmax_block(b.scores, range, options.causal, options.window, static_cast<float>(options.soft_cap),
                  padded(seen), b.max, b.sum);
    for (std::int64_t tile = 0; tile < seen; tile += kTile) {
      multiply(d, lanes, padded(std::min(kTile, seen - tile)), b.v + (range.key_begin + tile) * d, kTile,
               b.scores + tile * kTile, kTile, b.out, kTile, tile > 0);
    }
    store_block(b.out, b.sum, rows, d, head.out_stride, head.out + begin * head.out_stride);
    if (head.lse == nullptr) continue;
    for (std::int64_t row = 0; row < rows; ++row) head.lse[begin + row] = b.max[row] + std::log(b.sum[row]);
  }
}

}  // namespace

void attention_forward(const at::Tensor& q, const std::vector<at::Tensor>& k,
                       const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse) {
  const std::int64_t heads = q.size(1), d = q.size(2), kv_heads = k.empty() ? 1 : k[0].size(1);
  const std::int64_t group = heads / kv_heads;
  std::vector<std::int64_t> lengths;
  lengths.reserve(k.size());
  for (std::size_t s = 0; s < k.size(); ++s) lengths.push_back(cu_q[s] == cu_q[s + 1] ? 0 : k[s].size(0));
  const auto longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const Scratch scratch(q, Buffers::size(longest, d));
  vector::dispatch(q, [&]<typename T>(T*) {
    for_each_item(lengths, kv_heads, [&](std::int64_t worker, const WorkItem& item) {
      const auto s = static_cast<std::size_t>(item.sequence);
      const std::int64_t begin = cu_q[s];
      const Buffers buffers(scratch.of(worker), longest, d);
      for (std::int64_t head = item.kv_head * group; head < (item.kv_head + 1) * group; ++head) {
        const HeadView<T> view{
            .q = vector::data<T>(q) + begin * q.stride(0) + head * q.stride(1),
            .k = vector::data<T>(k[s]) + item.kv_head * k[s].stride(1),
            .v = vector::data<T>(v[s]) + item.kv_head * v[s].stride(1),
            .out = vector::data<T>(out) + (begin * heads + head) * d,
            .lse = lse.defined() ? lse.data_ptr<float>() + head * q.size(0) + begin : nullptr,
            .q_stride = q.stride(0),
            .k_stride = k[s].stride(0),
            .v_stride = v[s].stride(0),
            .out_stride = heads * d,
            .queries = cu_q[s + 1] - begin,
            .keys = k[s].size(0),
            .head_dim = d};
        if (head == item.kv_head * group) load_keys_and_values(view, buffers);
        run_head(view, options, buffers);
      }
    });
  });
}

}  // namespace lorikeet::ops::cpu
