#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/vector.h"

// What the two CPU kernels of attention share. Both work on transposed score tiles [keys, 64 queries]: a
// query is a vector lane, so that softmax needs no sums across lanes, and only whole rows of K and V are
// read. All sizes that reach a product are 64 or, at a sequence's end, multiples of 16: oneDNN compiles a
// kernel for each size it meets, and sequences come in all lengths.
namespace lorikeet::ops::cpu {

inline constexpr std::int64_t kTile = 64;
inline constexpr std::int64_t kPad = 16;

inline std::int64_t padded(std::int64_t n) { return (n + kPad - 1) / kPad * kPad; }

/// c [m, n] (+)= a [m, k] b [k, n], fp32, row-major with the given row strides.
inline void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                     const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, /*is_vnni=*/false);
}

/// Which keys a block of queries sees. Positions count from the sequence's first key.
struct BlockRange {
  std::int64_t first_query;         ///< position of the block's first query
  std::int64_t key_begin, key_end;  ///< keys that any of them sees; key_begin is a multiple of kTile
};

inline BlockRange block_range(std::int64_t first_query, std::int64_t queries, std::int64_t keys,
                              const AttentionOptions& options) {
  BlockRange range{first_query, 0, keys};
  if (options.causal) range.key_end = std::min(keys, first_query + queries);
  if (options.window > 0) {
    range.key_begin = std::max<std::int64_t>(0, first_query - options.window + 1) / kTile * kTile;
  }
  return range;
}

/// The lanes [from, to) of a block of kTile queries that see key `j`.
struct Lanes {
  std::int32_t from, to;
};

LORIKEET_INLINE Lanes lanes_of(std::int64_t j, const BlockRange& range, bool causal, std::int64_t window) {
  const std::int64_t offset = j - range.first_query;
  std::int64_t from = causal ? offset : 0;
  std::int64_t to = window > 0 ? offset + window : kTile;
  if (j >= range.key_end) to = 0;
  from = from < 0 ? 0 : from;
  to = to > kTile ? kTile : (to < 0 ? 0 : to);
  return {static_cast<std::int32_t>(from), static_cast<std::int32_t>(to)};
}

/// out [rows_padded, width] = factor * in, where rows from `rows` on are 0. `stride` is in's, in elements.
template <typename T>
LORIKEET_INLINE void load_rows(const T* in, std::int64_t stride, std::int64_t rows, std::int64_t rows_padded,
                               std::int64_t width, float factor, float* __restrict__ out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = in + row * stride;
    for (std::int64_t i = 0; i < width; ++i) out[row * width + i] = vector::load(from[i]) * factor;
  }
  std::fill(out + rows * width, out + rows_padded * width, 0.0F);
}

/// out [width, kTile] = in^T for in [rows, width]; lanes from `rows` on are 0.
LORIKEET_INLINE void transpose_tile(const float* __restrict__ in, std::int64_t rows, std::int64_t width,
                                    float* __restrict__ out) {
  for (std::int64_t i = 0; i < width; ++i) {
    float* to = out + i * kTile;
    for (std::int64_t row = 0; row < rows; ++row) to[row] = in[row * width + i];
    for (std::int64_t row = rows; row < kTile; ++row) to[row] = 0.0F;
  }
}

/// One sequence and one key/value head: what a thread takes at a time. Each writes rows that no other does
/// and sums in its own fixed order, so the result is the same whoever does it.
struct WorkItem {
  std::int64_t sequence, kv_head;
};

/// Runs f(worker, item) for all sequences and heads over the threads, the longest sequences first, each
/// thread taking the next when it is done. lengths: a measure of each sequence's work.
template <typename F>
void for_each_item(const std::vector<std::int64_t>& lengths, std::int64_t kv_heads, const F& f) {
  std::vector<std::int64_t> order(lengths.size());
  for (std::size_t s = 0; s < order.size(); ++s) order[s] = static_cast<std::int64_t>(s);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  while (!order.empty() && lengths[static_cast<std::size_t>(order.back())] == 0) order.pop_back();
  const auto items = static_cast<std::int64_t>(order.size()) * kv_heads;
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, std::min<std::int64_t>(at::get_num_threads(), items), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t worker = begin; worker < end; ++worker) {
                       for (auto i = next++; i < items; i = next++) {
                         f(worker, WorkItem{order[static_cast<std::size_t>(i / kv_heads)], i % kv_heads});
                       }
                     }
                   });
}

/// Each worker's scratch for an operator over `tensor`: `floats` fp32, 64-byte aligned.
class Scratch {
 public:
  Scratch(const at::Tensor& tensor, std::int64_t floats) : stride_((floats + kPad - 1) / kPad * kPad) {
    const std::int64_t threads = tensor.is_meta() ? dry_target()->threads : at::get_num_threads();
    buffer_ = at::empty({threads * stride_}, tensor.options().dtype(at::kFloat));
  }
  float* of(std::int64_t worker) const { return buffer_.data_ptr<float>() + worker * stride_; }

 private:
  std::int64_t stride_;
  at::Tensor buffer_;
};

}  // namespace lorikeet::ops::cpu
