#include "ops/latent_heads/cpu.h"

#include <ATen/Parallel.h>

#include <vector>

#include "ops/vector.h"
#include "ops/vector_rows.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::rows_from;
using vector::store;

constexpr std::int64_t kGrainRows = 8;

// Rows of one thread; those of the packed heads and of the angles follow each other.
template <typename T>
struct Rows {
  T *q, *kv, *shared, *packed;
  const float *cos, *sin;
  std::int64_t rows;
  std::int64_t q_row, kv_row, shared_row;  // elements from one row to the next
  float* sums;                             // of rotary_dim numbers, of the backward alone
};

template <typename T>
LORIKEET_INLINE void copy(const T* from, std::int64_t count, T* to) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

template <typename T>
LORIKEET_INLINE void zero(std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) store(0.0F, to[i]);
}

// Pairs, or back by their angles where `sign` is -1: `next` elements from one pair to the next, `apart`
// between the two of a pair. Not in place.
template <int next, typename From, typename To>
LORIKEET_INLINE void rotate_pairs(const From* __restrict__ from, const float* c, const float* s,
                                  std::int64_t half, std::int64_t apart, float sign, To* __restrict__ to) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = load(from[next * i]), b = load(from[next * i + apart]), turn = sign * s[i];
    store(a * c[i] - b * turn, to[next * i]);
    store(b * c[i] + a * turn, to[next * i + apart]);
  }
}

template <typename From, typename To>
LORIKEET_INLINE void rotate(const From* from, const float* c, const float* s, const LatentLayout& layout,
                            float sign, To* to) {
  const std::int64_t half = layout.rotary_dim / 2;
  if (layout.interleaved) {
    rotate_pairs<2>(from, c, s, half, 1, sign, to);
  } else {
    rotate_pairs<1>(from, c, s, half, half, sign, to);
  }
}

template <typename T>
LORIKEET_INLINE void forward_rows(const Rows<T>& r, const LatentLayout& layout) {
  const std::int64_t plain = layout.plain_dim, key = layout.key_dim(), head = layout.head_dim();
  const std::int64_t half = layout.rotary_dim / 2, all = layout.heads * head;
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const float *c = r.cos + row * half, *s = r.sin + row * half;
    T* const packed = r.packed + row * 3 * all;
    for (std::int64_t h = 0; h < layout.heads; ++h) {
      const T* const q = r.q + row * r.q_row + h * key;
      const T* const kv = r.kv + row * r.kv_row + h * (plain + layout.value_dim);
      T *to_q = packed + h * head, *to_k = to_q + all, *to_v = to_k + all;
      copy(q, plain, to_q);
      rotate(q + plain, c, s, layout, 1.0F, to_q + plain);
      zero(head - key, to_q + key);
      copy(kv, plain, to_k);
      // The shared part is rotated once, and copied from the first head.
      if (h == 0) {
        rotate(r.shared + row * r.shared_row, c, s, layout, 1.0F, to_k + plain);
      } else {
        copy(packed + all + plain, layout.rotary_dim, to_k + plain);
      }
      zero(head - key, to_k + key);
      copy(kv + plain, layout.value_dim, to_v);
      zero(head - layout.value_dim, to_v + layout.value_dim);
    }
  }
}

template <typename T>
LORIKEET_INLINE void backward_rows(const Rows<T>& r, const LatentLayout& layout) {
  const std::int64_t plain = layout.plain_dim, key = layout.key_dim(), head = layout.head_dim();
  const std::int64_t half = layout.rotary_dim / 2, all = layout.heads * head;
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const float *c = r.cos + row * half, *s = r.sin + row * half;
    const T* const packed = r.packed + row * 3 * all;
    for (std::int64_t i = 0; i < layout.rotary_dim; ++i) r.sums[i] = 0;
    for (std::int64_t h = 0; h < layout.heads; ++h) {
      T* const q = r.q + row * r.q_row + h * key;
      T* const kv = r.kv + row * r.kv_row + h * (plain + layout.value_dim);
      const T *dq = packed + h * head, *dk = dq + all, *dv = dk + all;
      copy(dq, plain, q);
      rotate(dq + plain, c, s, layout, -1.0F, q + plain);
      copy(dk, plain, kv);
      copy(dv, layout.value_dim, kv + plain);
      for (std::int64_t i = 0; i < layout.rotary_dim; ++i) r.sums[i] += load(dk[plain + i]);
    }
    rotate(r.sums, c, s, layout, -1.0F, r.shared + row * r.shared_row);
  }
}

LORIKEET_VECTOR_CLONES void forward(const Rows<float>& rows, const LatentLayout& layout) {
  forward_rows(rows, layout);
}
LORIKEET_VECTOR_CLONES void forward(const Rows<Bf16>& rows, const LatentLayout& layout) {
  forward_rows(rows, layout);
}
LORIKEET_VECTOR_CLONES void backward(const Rows<float>& rows, const LatentLayout& layout) {
  backward_rows(rows, layout);
}
LORIKEET_VECTOR_CLONES void backward(const Rows<Bf16>& rows, const LatentLayout& layout) {
  backward_rows(rows, layout);
}

// Calls kernel(rows) for the rows of each thread.
template <typename Kernel>
void over_rows(const LatentParts& parts, const at::Tensor& packed, const at::Tensor& cos,
               const at::Tensor& sin, const LatentLayout& layout, const Kernel& kernel) {
  vector::dispatch(packed, [&]<typename T>(T*) {
    at::parallel_for(0, packed.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> sums(static_cast<std::size_t>(layout.rotary_dim));
      kernel(Rows<T>{.q = rows_from<T>(parts.q, begin),
                     .kv = rows_from<T>(parts.kv, begin),
                     .shared = rows_from<T>(parts.shared_key, begin),
                     .packed = rows_from<T>(packed, begin),
                     .cos = rows_from<float>(cos, begin),
                     .sin = rows_from<float>(sin, begin),
                     .rows = end - begin,
                     .q_row = parts.q.stride(0),
                     .kv_row = parts.kv.stride(0),
                     .shared_row = parts.shared_key.stride(0),
                     .sums = sums.data()});
    });
  });
}

}  // namespace

void latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                  const LatentLayout& layout, const at::Tensor& packed) {
  over_rows(parts, packed, cos, sin, layout, [&](const auto& rows) { forward(rows, layout); });
}

void latent_heads_backward(const at::Tensor& dpacked, const at::Tensor& cos, const at::Tensor& sin,
                           const LatentLayout& layout, const LatentParts& out) {
  over_rows(out, dpacked, cos, sin, layout, [&](const auto& rows) { backward(rows, layout); });
}

}  // namespace lorikeet::ops::cpu
