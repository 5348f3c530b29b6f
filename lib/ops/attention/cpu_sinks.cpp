#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/attention/cpu.h"
#include "ops/vector.h"
#include "ops/vector_log.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 16;
constexpr std::int64_t kBlock = 64;  // rows whose shares are computed at a time

// Rows [begin, begin + rows) of one head.
template <typename T>
struct HeadRows {
  T* out;      // the head's part of the first row
  float* lse;  // of the first row; rows are neighbours
  float sink;
  std::int64_t rows, head_dim, out_row;  // out_row: elements from one row of out to the next
};

template <typename T>
LORIKEET_INLINE void scale_rows(const HeadRows<T>& r) {
  for (std::int64_t begin = 0; begin < r.rows; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, r.rows - begin);
    float* __restrict__ lse = r.lse + begin;
    float share[kBlock];
    // With d = lse - sink: the keys' share is sigmoid(d), and to the larger of both the smaller adds
    // log(1 + e^-|d|).
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = lse[i] - r.sink, e = vector::exp(d < 0 ? d : -d), all = 1.0F / (1.0F + e);
      share[i] = d < 0 ? e * all : all;
      lse[i] = (d < 0 ? r.sink : lse[i]) + vector::log_1_plus(e);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      T* const row = r.out + (begin + i) * r.out_row;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < r.head_dim; ++j) store(load(row[j]) * share[i], row[j]);
    }
  }
}

LORIKEET_VECTOR_CLONES void scale(const HeadRows<float>& rows) { scale_rows(rows); }
LORIKEET_VECTOR_CLONES void scale(const HeadRows<Bf16>& rows) { scale_rows(rows); }

}  // namespace

void apply_sinks(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks) {
  const std::int64_t heads = sinks.size(0), tokens = out.size(0), head_dim = out.size(1) / heads;
  vector::dispatch(out, [&]<typename T>(T*) {
    const float* const of_heads = sinks.const_data_ptr<float>();
    at::parallel_for(0, tokens, kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t head = 0; head < heads; ++head) {
        scale(HeadRows<T>{.out = vector::data<T>(out) + (begin * heads + head) * head_dim,
                          .lse = lse.data_ptr<float>() + head * tokens + begin,
                          .sink = of_heads[head],
                          .rows = end - begin,
                          .head_dim = head_dim,
                          .out_row = heads * head_dim});
      }
    });
  });
}

}  // namespace lorikeet::ops::cpu
