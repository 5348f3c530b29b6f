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

// Scales scores [keys, kTile], caps them, hides them, and gives each lane's max.
LORIKEET_INLINE void mask_lanes(float* __restrict__ scores, const BlockRange& range,
                                const AttentionOptions& options, std::int64_t rows, float* __restrict__ max) {
  const auto scale = static_cast<float>(options.scale), cap = static_cast<float>(options.soft_cap);
  for (std::int64_t lane = 0; lane < kTile; ++lane) max[lane] = kLowest;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    const Lanes seen = lanes_of(range.key_begin + row, range, options.causal, options.window);
    for (std::int64_t lane = 0; lane < kTile; ++lane) s[lane] *= scale;
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
}

// exp(score - max) in place; adds to each lane's sum.
LORIKEET_INLINE void exponentiate(float* __restrict__ scores, const float* __restrict__ max,
                                  std::int64_t rows, float* __restrict__ sum) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* __restrict__ s = scores + row * kTile;
    for (std::int64_t lane = 0; lane < kTile; ++lane) {
      const float p = vector::exp(s[lane] - max[lane]);
      s[lane] = p;
      sum[lane] += p;
    }
  }
}

// Turns scores [rows, kTile] into exp(score - max) in place, 0 where hidden; gives each lane's max and sum.
LORIKEET_VECTOR_CLONES void softmax_block(float* scores, const BlockRange& range,
                                          const AttentionOptions& options, std::int64_t rows, float*,
                                          float* max, float* sum) {
  mask_lanes(scores, range, options, rows, max);
  std::fill(sum, sum + kTile, 0.0F);
  exponentiate(scores, max, rows, sum);
}

// The same, written to `pairs` in bf16; what is summed is not rounded. rows is even.
LORIKEET_VECTOR_CLONES void softmax_block(float* scores, const BlockRange& range,
                                          const AttentionOptions& options, std::int64_t rows, Bf16Pair* pairs,
                                          float* max, float* sum) {
  mask_lanes(scores, range, options, rows, max);
  std::fill(sum, sum + kTile, 0.0F);
  for (std::int64_t row = 0; row < rows; row += 2) {
    exponentiate(scores + row * kTile, max, 2, sum);
    const float *even = scores + row * kTile, *odd = even + kTile;
    Bf16Pair* to = pairs + row / 2 * kTile;
    for (std::int64_t lane = 0; lane < kTile; ++lane) {
      Bf16 lower, upper;
      vector::store(even[lane], lower);
      vector::store(odd[lane], upper);
      to[lane] = pair_of(lower, upper);
    }
  }
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

LORIKEET_VECTOR_CLONES void store_block(const float* in, const float* sum, std::int64_t rows,
                                        std::int64_t width, std::int64_t stride, float* out) {
  store_transposed(in, sum, rows, width, stride, out);
}
LORIKEET_VECTOR_CLONES void store_block(const float* in, const float* sum, std::int64_t rows,
                                        std::int64_t width, std::int64_t stride, Bf16* out) {
  store_transposed(in, sum, rows, width, stride, out);
}

// The scratch of one worker, for sequences of at most `keys`.
template <typename E>
struct Buffers {
  using Right = typename RightOperand<E>::Element;
  static constexpr auto kRows = RightOperand<E>::kRows;

  Buffers(Cutter& cutter, std::int64_t keys, std::int64_t head_dim) {
    const auto all = (keys + kTile - 1) / kTile * kTile;
    k = cutter.cut<E>(all * head_dim);
    v = cutter.cut<E>(all * head_dim);
    scores = cutter.cut<float>(all * kTile);
    if constexpr (std::is_same_v<Right, float>) {
      p = scores;
    } else {
      p = cutter.cut<Right>(all * kTile / kRows);
    }
    q = cutter.cut<E>(kTile * head_dim);
    q_lanes = cutter.cut<Right>(kTile * head_dim / kRows);
    out = cutter.cut<float>(kTile * head_dim);
    max = cutter.cut<float>(kTile);
    sum = cutter.cut<float>(kTile);
  }
  E* k;            // [keys, D]
  E* v;            // tiles [D, kTile]
  float* scores;   // [keys, kTile]
  Right* p;        // [keys, kTile], exp(score - max)
  E* q;            // [kTile, D]
  Right* q_lanes;  // [D, kTile]
  float* out;      // [D, kTile]
  float *max, *sum;
};

template <typename T, typename E>
void load_keys_and_values(const HeadView<T>& head, const Buffers<E>& buffers) {
  const auto d = head.head_dim;
  load_rows(head.k, head.k_stride, head.keys, padded(head.keys), d, buffers.k);
  for (std::int64_t begin = 0; begin < head.keys; begin += kTile) {
    const auto count = std::min(kTile, head.keys - begin);
    load_rows(head.v + begin * head.v_stride, head.v_stride, count, count, d, buffers.q);
    transpose_tile(buffers.q, count, d, buffers.v + begin * d);
  }
}

// All queries of one head, whose keys and values are in the buffers.
template <typename T, typename E>
void run_head(const HeadView<T>& head, const AttentionOptions& options, const Buffers<E>& b) {
  constexpr auto kRows = Buffers<E>::kRows;
  const auto d = head.head_dim;
  for (std::int64_t begin = 0; begin < head.queries; begin += kTile) {
    const auto rows = std::min(kTile, head.queries - begin);
    const auto lanes = padded(rows);
    const auto range = block_range(head.keys - head.queries + begin, rows, head.keys, options);
    load_rows(head.q + begin * head.q_stride, head.q_stride, rows, rows, d, b.q);
    transpose_right(b.q, rows, d, b.q_lanes);
    const auto seen = range.key_end - range.key_begin;
    for (std::int64_t tile = 0; tile < seen; tile += kTile) {
      multiply(padded(std::min(kTile, seen - tile)), lanes, d, b.k + (range.key_begin + tile) * d, d,
               b.q_lanes, kTile, b.scores + tile * kTile, kTile, false);
    }
    softmax_block(b.scores, range, options, padded(seen), b.p, b.max, b.sum);
    for (std::int64_t tile = 0; tile < seen; tile += kTile) {
      multiply(d, lanes, padded(std::min(kTile, seen - tile)), b.v + (range.key_begin + tile) * d, kTile,
               b.p + tile / kRows * kTile, kTile, b.out, kTile, tile > 0);
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
  const bool bf16 = multiplies_bf16(q, d);
  const Scratch scratch(q, bytes_of<Buffers>(bf16, longest, d));
  dispatch(q, bf16, [&]<typename T, typename E>(T*, E*) {
    for_each_item(lengths, kv_heads, [&](std::int64_t worker, const WorkItem& item) {
      const auto s = static_cast<std::size_t>(item.sequence);
      const std::int64_t begin = cu_q[s];
      auto cutter = scratch.of(worker);
      const Buffers<E> buffers(cutter, longest, d);
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
