#include "ops/rotary/cpu.h"

#include <ATen/Parallel.h>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 32;

// The pairs of one head: `next` elements from one pair to the next, `apart` between the two of a pair.
template <int next, typename T>
LORIKEET_INLINE void rotate_head(T* head, const float* c, const float* s, std::int64_t half,
                                 std::int64_t apart, float sign) {
  T* __restrict__ low = head;
  T* __restrict__ high = head + apart;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = load(low[next * i]), b = load(high[next * i]), turn = sign * s[i];
    store(a * c[i] - b * turn, low[next * i]);
    store(b * c[i] + a * turn, high[next * i]);
  }
}

template <typename T>
LORIKEET_INLINE void rotate_rows(T* qkv, const float* cos, const float* sin, std::int64_t rows,
                                 std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                 std::int64_t half, bool interleaved, float sign) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* c = cos + row * half;
    const float* s = sin + row * half;
    for (std::int64_t head = 0; head < heads; ++head) {
      T* of_head = qkv + row * width + head * head_dim;
      if (interleaved) {
        rotate_head<2>(of_head, c, s, half, 1, sign);
      } else {
        rotate_head<1>(of_head, c, s, half, half, sign);
      }
    }
  }
}

LORIKEET_VECTOR_CLONES void rotate(float* qkv, const float* cos, const float* sin, std::int64_t rows,
                                   std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                   std::int64_t half, bool interleaved, float sign) {
  rotate_rows(qkv, cos, sin, rows, width, heads, head_dim, half, interleaved, sign);
}
LORIKEET_VECTOR_CLONES void rotate(Bf16* qkv, const float* cos, const float* sin, std::int64_t rows,
                                   std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                   std::int64_t half, bool interleaved, float sign) {
  rotate_rows(qkv, cos, sin, rows, width, heads, head_dim, half, interleaved, sign);
}

}  // namespace

void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
            bool inverse) {
  const auto half = cos.size(1);
  const auto width = layout.width();
  vector::dispatch(qkv, [&]<typename T>(T*) {
    at::parallel_for(0, qkv.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      rotate(vector::data<T>(qkv) + begin * width, vector::data<float>(cos) + begin * half,
             vector::data<float>(sin) + begin * half, end - begin, width, layout.heads + layout.kv_heads,
             layout.head_dim, half, layout.interleaved, inverse ? -1.0F : 1.0F);
    });
  });
}

}  // namespace lorikeet::ops::cpu
