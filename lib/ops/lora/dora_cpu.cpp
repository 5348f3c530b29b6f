#include "ops/lora/dora_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 32;
constexpr std::int64_t kBlockColumns = 256;  // of which a thread sums all rows

template <typename T>
LORIKEET_INLINE void forward_rows(const T* x, const float* factors, const float* bias, T* y,
                                  std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    if (bias == nullptr) {
      for (std::int64_t i = 0; i < width; ++i) store(load(x[i]) * factors[i], y[i]);
    } else {
      for (std::int64_t i = 0; i < width; ++i) store(load(x[i]) * factors[i] + bias[i], y[i]);
    }
  }
}

// Columns [0, count) of rows that are `width` apart.
template <typename T>
LORIKEET_INLINE void backward_columns(const T* dy, const T* x, const float* factors, T* dx, float* sums,
                                      std::int64_t rows, std::int64_t width, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = 0;
  for (std::int64_t row = 0; row < rows; ++row, dy += width, x += width, dx += width) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float gradient = load(dy[i]);
      sums[i] += gradient * load(x[i]);
      store(gradient * factors[i], dx[i]);
    }
  }
}

LORIKEET_VECTOR_CLONES
void forward(const float* x, const float* f, const float* b, float* y, std::int64_t rows,
             std::int64_t width) {
  forward_rows(x, f, b, y, rows, width);
}
LORIKEET_VECTOR_CLONES
void forward(const Bf16* x, const float* f, const float* b, Bf16* y, std::int64_t rows, std::int64_t width) {
  forward_rows(x, f, b, y, rows, width);
}
LORIKEET_VECTOR_CLONES
void backward(const float* dy, const float* x, const float* f, float* dx, float* sums, std::int64_t rows,
              std::int64_t width, std::int64_t count) {
  backward_columns(dy, x, f, dx, sums, rows, width, count);
}
LORIKEET_VECTOR_CLONES
void backward(const Bf16* dy, const Bf16* x, const float* f, Bf16* dx, float* sums, std::int64_t rows,
              std::int64_t width, std::int64_t count) {
  backward_columns(dy, x, f, dx, sums, rows, width, count);
}

}  // namespace

void scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias, at::Tensor& y) {
  vector::dispatch(x, [&]<typename T>(T* /*type*/) {
    const std::int64_t width = x.size(1);
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      forward(vector::data<T>(x) + begin * width, vector::data<float>(factors),
              bias.defined() ? vector::data<float>(bias) : nullptr, vector::data<T>(y) + begin * width,
              end - begin, width);
    });
  });
}

void scale_columns_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& factors,
                            at::Tensor& dx, at::Tensor& sums) {
  vector::dispatch(x, [&]<typename T>(T* /*type*/) {
    const std::int64_t rows = x.size(0), width = x.size(1);
    const std::int64_t blocks = (width + kBlockColumns - 1) / kBlockColumns;
    at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * kBlockColumns;
        backward(vector::data<T>(dy) + first, vector::data<T>(x) + first,
                 vector::data<float>(factors) + first, vector::data<T>(dx) + first,
                 vector::data<float>(sums) + first, rows, width, std::min(kBlockColumns, width - first));
      }
    });
  });
}

}  // namespace lorikeet::ops::cpu
