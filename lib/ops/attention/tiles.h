#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/products.h"
#include "ops/vector.h"

// What the two CPU kernels of attention share. Both work on transposed score tiles [keys, 64 queries]: a
// query is a vector lane, so that softmax needs no sums across lanes, and only whole rows of K and V are
// read. All sizes that reach a product are 64 or, at a sequence's end, multiples of 16: oneDNN compiles a
// kernel for each size it meets, and sequences come in all lengths. T is the dtype of the tensors, E that of
// the products' operands: T, or fp32.
namespace lorikeet::ops::cpu {

inline constexpr std::int64_t kTile = 64;
inline constexpr std::int64_t kPad = 16;

inline std::int64_t padded(std::int64_t n) { return (n + kPad - 1) / kPad * kPad; }

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

/// out [rows_padded, width] = in, where rows from `rows` on are 0. `stride` is in's, in elements.
void load_rows(const float* in, std::int64_t stride, std::int64_t rows, std::int64_t rows_padded,
               std::int64_t width, float* out);
void load_rows(const vector::Bf16* in, std::int64_t stride, std::int64_t rows, std::int64_t rows_padded,
               std::int64_t width, float* out);
void load_rows(const vector::Bf16* in, std::int64_t stride, std::int64_t rows, std::int64_t rows_padded,
               std::int64_t width, vector::Bf16* out);

/// out [width, kTile] = in^T for in [rows, width]; lanes from `rows` on are 0.
void transpose_tile(const float* in, std::int64_t rows, std::int64_t width, float* out);
void transpose_tile(const vector::Bf16* in, std::int64_t rows, std::int64_t width, vector::Bf16* out);

/// The same, stored as a product's right operand.
void transpose_right(const float* in, std::int64_t rows, std::int64_t width, float* out);
void transpose_right(const vector::Bf16* in, std::int64_t rows, std::int64_t width, Bf16Pair* out);

/// out [rows, width], in pairs of rows, = in; rows is even.
void pair_rows(const vector::Bf16* in, std::int64_t rows, std::int64_t width, Bf16Pair* out);

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
                     release_products();
                   });
}

/// Cuts arrays out of a worker's scratch, each at a cache line's begin. Without memory it only counts bytes.
class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}
  template <typename E>
  E* cut(std::int64_t count) {
    E* const array = memory_ == nullptr ? nullptr : reinterpret_cast<E*>(memory_ + bytes_);
    bytes_ += (count * static_cast<std::int64_t>(sizeof(E)) + kLine - 1) / kLine * kLine;
    return array;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kLine = 64;
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

/// What a worker's Buffers<E> take: a template of structs of arrays, each constructed from (Cutter&, keys,
/// head_dim).
template <template <typename> typename Buffers>
std::int64_t bytes_of(bool bf16, std::int64_t keys, std::int64_t head_dim) {
  Cutter counter(nullptr);
  if (bf16) {
    Buffers<vector::Bf16>(counter, keys, head_dim);
  } else {
    Buffers<float>(counter, keys, head_dim);
  }
  return counter.bytes();
}

/// Each worker's scratch for an operator over `tensor`, aligned to cache lines.
class Scratch {
 public:
  Scratch(const at::Tensor& tensor, std::int64_t bytes) : bytes_(bytes) {
    buffer_ = at::empty({vector::threads_for(tensor) * bytes_}, tensor.options().dtype(at::kByte));
  }
  Cutter of(std::int64_t worker) const {
    return Cutter(static_cast<std::byte*>(buffer_.data_ptr()) + worker * bytes_);
  }

 private:
  std::int64_t bytes_;
  at::Tensor buffer_;
};

/// Calls f with null pointers of the element types of `tensor` (fp32 or bf16) and of the products' operands.
/// Without data it isn't called.
template <typename F>
void dispatch(const at::Tensor& tensor, bool bf16, F&& f) {
  vector::dispatch(tensor, [&]<typename T>(T* element) {
    if constexpr (std::is_same_v<T, vector::Bf16>) {
      if (bf16) return f(element, element);
    }
    f(element, static_cast<float*>(nullptr));
  });
}

}  // namespace lorikeet::ops::cpu
