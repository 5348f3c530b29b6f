#include "ops/gated_norm/cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/vector.h"
#include "ops/vector_rows.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::rows_from;
using vector::store;
using vector::sum_of;

constexpr std::int64_t kGrainRows = 8;

// Rows of one thread; those of all but z and dz follow each other. What is absent is null.
template <typename T>
struct Rows {
  const T *x, *z;
  T *dy, *dz, *y;
  const float* w;
  float eps;
  std::int64_t rows, heads, width;  // width of a head
  std::int64_t z_row, dz_row;       // elements from one row to the next
};

template <typename T>
LORIKEET_INLINE float reciprocal_deviation(const T* x, std::int64_t width, float eps) {
  const float squares =
      sum_of(width, [&](std::int64_t i) __attribute__((always_inline)) { return load(x[i]) * load(x[i]); });
  return 1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
}

template <typename T>
LORIKEET_INLINE void forward_rows(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    for (std::int64_t head = 0; head < r.heads; ++head) {
      const std::int64_t begin = (row * r.heads + head) * r.width;
      const T* x = r.x + begin;
      const T* z = r.z + row * r.z_row + head * r.width;
      T* y = r.y + begin;
      const float rstd = reciprocal_deviation(x, r.width, r.eps);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) {
        const float gate = load(z[i]);
        store(load(x[i]) * rstd * r.w[i] * (gate * vector::sigmoid(gate)), y[i]);
      }
    }
  }
}

// With n = x rstd and g = w silu(z) dy, the gradient of n:
//   dx = rstd g - x rstd^3 mean(g x),   dz = w n dy silu'(z).
// dy and z are read before dx and dz are written over them.
template <bool again, typename T>
LORIKEET_INLINE void backward_loop(const Rows<T>& r) {
  float g[kMostGatedNormHead];
  for (std::int64_t row = 0; row < r.rows; ++row) {
    for (std::int64_t head = 0; head < r.heads; ++head) {
      const std::int64_t begin = (row * r.heads + head) * r.width;
      const T* x = r.x + begin;
      const T* z = r.z + row * r.z_row + head * r.width;
      T* dy = r.dy + begin;
      T* dz = r.dz + row * r.dz_row + head * r.width;
      T* y = again ? r.y + begin : nullptr;
      const float rstd = reciprocal_deviation(x, r.width, r.eps);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) {
        const float gate = load(z[i]), s = vector::sigmoid(gate), activated = gate * s;
        const float normed = load(x[i]) * rstd * r.w[i], d = load(dy[i]);
        g[i] = d * r.w[i] * activated;
        store(d * normed * (s * (1.0F + gate * (1.0F - s))), dz[i]);
        if constexpr (again) store(normed * activated, y[i]);
      }
      const float dot =
          sum_of(r.width, [&](std::int64_t i) __attribute__((always_inline)) { return g[i] * load(x[i]); });
      const float along = rstd * rstd * rstd * dot / static_cast<float>(r.width);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) store(rstd * g[i] - along * load(x[i]), dy[i]);
    }
  }
}

template <typename T>
LORIKEET_INLINE void backward_rows(const Rows<T>& r) {
  if (r.y != nullptr) {
    backward_loop<true>(r);
  } else {
    backward_loop<false>(r);
  }
}

LORIKEET_VECTOR_CLONES void forward(const Rows<float>& rows) { forward_rows(rows); }
LORIKEET_VECTOR_CLONES void forward(const Rows<Bf16>& rows) { forward_rows(rows); }
LORIKEET_VECTOR_CLONES void backward(const Rows<float>& rows) { backward_rows(rows); }
LORIKEET_VECTOR_CLONES void backward(const Rows<Bf16>& rows) { backward_rows(rows); }

// Calls kernel(rows) for the rows of each thread. dy and dz may be undefined.
template <typename Kernel>
void over_rows(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps,
               const at::Tensor& dy, const at::Tensor& dz, const at::Tensor& y, const Kernel& kernel) {
  const std::int64_t width = weight.size(0);
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      kernel(Rows<T>{.x = rows_from<T>(x, begin),
                     .z = rows_from<T>(z, begin),
                     .dy = rows_from<T>(dy, begin),
                     .dz = rows_from<T>(dz, begin),
                     .y = rows_from<T>(y, begin),
                     .w = vector::data<float>(weight),
                     .eps = static_cast<float>(eps),
                     .rows = end - begin,
                     .heads = x.size(1) / width,
                     .width = width,
                     .z_row = z.stride(0),
                     .dz_row = dz.defined() ? dz.stride(0) : 0});
    });
  });
}

}  // namespace

void gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps,
                const at::Tensor& y) {
  over_rows(x, z, weight, eps, {}, {}, y, [](const auto& rows) { forward(rows); });
}

void gated_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                         const at::Tensor& weight, double eps, const at::Tensor& dz, const at::Tensor& y) {
  over_rows(x, z, weight, eps, dy, dz, y, [](const auto& rows) { backward(rows); });
}

}  // namespace lorikeet::ops::cpu
