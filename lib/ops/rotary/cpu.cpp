#include "ops/rotary/cpu.h"

#include <ATen/Parallel.h>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 32;

template <typename T>
LORIKEET_INLINE void rotate_rows(T* qkv, const float* cos, const float* sin, std::int64_t rows,
                                 std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                 std::int64_t half, float sign) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* c = cos + row * half;
    const float* s = sin + row * half;
    for (std::int64_t head = 0; head < heads; ++head) {
      T* __restrict__ low = qkv + row * width + head * head_dim;
      T* __restrict__ high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = load(low[i]), b = load(high[i]), turn = sign * s[i];
        store(a * c[i] - b * turn, low[i]);
        store(b * c[i] + a * turn, high[i]);
      }
    }
  }
}

LORIKEET_VECTOR_CLONES void rotate(float* qkv, const float* cos, const float* sin, std::int64_t rows,
                                   std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                   std::int64_t half, float sign) {
  rotate_rows(qkv, cos, sin, rows, width, heads, head_dim, half, sign);
}
LORIKEET_VECTOR_CLONES void rotate(Bf16* qkv, const float* cos, const float* sin, std::int64_t rows,
                                   std::int64_t width, std::int64_t heads, std::int64_t head_dim,
                                   std::int64_t half, float sign) {
  rotate_rows(qkv, cos, sin, rows, width, heads, head_dim, half, sign);
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
             layout.head_dim, half, inverse ? -1.0F : 1.0F);
    });
  });
}

}  // namespace lorikeet::ops::cpu
