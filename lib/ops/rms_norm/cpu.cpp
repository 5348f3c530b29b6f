#include "ops/rms_norm/cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::kLanes;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 32;

// sum over i of f(i), in kLanes partial sums.
template <typename F>
LORIKEET_INLINE float sum_of(std::int64_t n, F f) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  }
  float total = 0;
  for (; i < n; ++i) total += f(i);
  for (const float lane : lanes) total += lane;
  return total;
}

template <typename T>
LORIKEET_INLINE void forward_rows(const T* x, const T* delta, const float* w, float eps, T* sum, T* y,
                                  float* rstd, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * width;
    if (delta != nullptr) {
      const T* add = delta + row * width;
      T* out = sum + row * width;
      for (std::int64_t i = 0; i < width; ++i) store(load(in[i]) + load(add[i]), out[i]);
      in = out;
    }
    const float squares = sum_of(
        width, [&](std::int64_t i) __attribute__((always_inline)) { return load(in[i]) * load(in[i]); });
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
    rstd[row] = scale;
    T* out = y + row * width;
    for (std::int64_t i = 0; i < width; ++i) store(load(in[i]) * scale * w[i], out[i]);
  }
}

// With g = w dy: dx = rstd g - x rstd^3 mean(g x).
template <typename T>
LORIKEET_INLINE void backward_rows(const T* dy, const T* extra, const T* x, const float* w, const float* rstd,
                                   T* dx, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* g = dy + row * width;
    const T* in = x + row * width;
    T* out = dx + row * width;
    const float scale = rstd[row];
    const float dot = sum_of(
        width, [&](std::int64_t i)
                   __attribute__((always_inline)) { return load(g[i]) * w[i] * load(in[i]); });
    const float along = scale * scale * scale * dot / static_cast<float>(width);
    if (extra == nullptr) {
      for (std::int64_t i = 0; i < width; ++i) store(scale * w[i] * load(g[i]) - along * load(in[i]), out[i]);
    } else {
      const T* add = extra + row * width;
      for (std::int64_t i = 0; i < width; ++i) {
        store(scale * w[i] * load(g[i]) - along * load(in[i]) + load(add[i]), out[i]);
      }
    }
  }
}

LORIKEET_VECTOR_CLONES void forward(const float* x, const float* delta, const float* w, float eps, float* sum,
                                    float* y, float* rstd, std::int64_t rows, std::int64_t width) {
  forward_rows(x, delta, w, eps, sum, y, rstd, rows, width);
}
LORIKEET_VECTOR_CLONES void forward(const Bf16* x, const Bf16* delta, const float* w, float eps, Bf16* sum,
                                    Bf16* y, float* rstd, std::int64_t rows, std::int64_t width) {
  forward_rows(x, delta, w, eps, sum, y, rstd, rows, width);
}
LORIKEET_VECTOR_CLONES void backward(const float* dy, const float* extra, const float* x, const float* w,
                                     const float* rstd, float* dx, std::int64_t rows, std::int64_t width) {
  backward_rows(dy, extra, x, w, rstd, dx, rows, width);
}
LORIKEET_VECTOR_CLONES void backward(const Bf16* dy, const Bf16* extra, const Bf16* x, const float* w,
                                     const float* rstd, Bf16* dx, std::int64_t rows, std::int64_t width) {
  backward_rows(dy, extra, x, w, rstd, dx, rows, width);
}

// Rows from `begin` on of a tensor that may be undefined.
template <typename T>
T* rows_from(const at::Tensor& tensor, std::int64_t begin, std::int64_t width) {
  return tensor.defined() ? vector::data<T>(tensor) + begin * width : nullptr;
}

}  // namespace

void rms_norm_forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& w, double eps,
                      at::Tensor& sum, at::Tensor& y, at::Tensor& rstd) {
  const auto width = x.size(1);
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      forward(rows_from<T>(x, begin, width), rows_from<T>(delta, begin, width), vector::data<float>(w),
              static_cast<float>(eps), rows_from<T>(sum, begin, width), rows_from<T>(y, begin, width),
              rows_from<float>(rstd, begin, 1), end - begin, width);
    });
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
                       const at::Tensor& w, const at::Tensor& rstd, at::Tensor& dx) {
  const auto width = x.size(1);
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      backward(rows_from<T>(dy, begin, width), rows_from<T>(extra, begin, width),
               rows_from<T>(x, begin, width), vector::data<float>(w), rows_from<float>(rstd, begin, 1),
               rows_from<T>(dx, begin, width), end - begin, width);
    });
  });
}

}  // namespace lorikeet::ops::cpu
