#include "ops/norm_of_gated/cpu.h"

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

constexpr std::int64_t kGrainRows = 4;

// Rows of one thread; those of all but z and dz follow each other. What is absent is null.
template <typename T>
struct Rows {
  const T *x, *z;
  T *dy, *dz, *y;
  const float* w;
  float eps;
  std::int64_t rows, groups, width;  // width of a group
  std::int64_t z_row, dz_row;        // elements from one row to the next
};

LORIKEET_INLINE float reciprocal_deviation(float squares, std::int64_t width, float eps) {
  return 1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
}

template <typename T>
LORIKEET_INLINE void forward_rows(const Rows<T>& r) {
  float gated[kMostNormOfGatedGroup];
  for (std::int64_t row = 0; row < r.rows; ++row) {
    for (std::int64_t group = 0; group < r.groups; ++group) {
      const std::int64_t column = group * r.width, begin = row * r.groups * r.width + column;
      const T* x = r.x + begin;
      const T* z = r.z + row * r.z_row + column;
      const float* w = r.w + column;
      T* y = r.y + begin;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) {
        const float gate = load(z[i]);
        gated[i] = load(x[i]) * (gate * vector::sigmoid(gate));
      }
      const float squares =
          sum_of(r.width, [&](std::int64_t i) __attribute__((always_inline)) { return gated[i] * gated[i]; });
      const float rstd = reciprocal_deviation(squares, r.width, r.eps);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) store(gated[i] * rstd * w[i], y[i]);
    }
  }
}

// With u = x silu(z) and n = u rstd:
//   du = rstd (w dy - n mean(w dy n)),   dx = du silu(z),   dz = du x silu'(z).
// dy and z are read before dx and dz are written over them.
template <bool again, typename T>
LORIKEET_INLINE void backward_loop(const Rows<T>& r) {
  float open[kMostNormOfGatedGroup];  // the gate's sigmoid
  for (std::int64_t row = 0; row < r.rows; ++row) {
    for (std::int64_t group = 0; group < r.groups; ++group) {
      const std::int64_t column = group * r.width, begin = row * r.groups * r.width + column;
      const T* x = r.x + begin;
      const T* z = r.z + row * r.z_row + column;
      const float* w = r.w + column;
      T* dy = r.dy + begin;
      T* dz = r.dz + row * r.dz_row + column;
      T* y = again ? r.y + begin : nullptr;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) open[i] = vector::sigmoid(load(z[i]));
      const auto gated = [&](std::int64_t i) __attribute__((always_inline)) {
        return load(x[i]) * (load(z[i]) * open[i]);
      };
      const float squares =
          sum_of(r.width, [&](std::int64_t i) __attribute__((always_inline)) { return gated(i) * gated(i); });
      const float products = sum_of(
          r.width, [&](std::int64_t i)
                       __attribute__((always_inline)) { return w[i] * load(dy[i]) * gated(i); });
      const float rstd = reciprocal_deviation(squares, r.width, r.eps);
      const float along = rstd * rstd * rstd * (products / static_cast<float>(r.width));
#pragma GCC ivdep
      for (std::int64_t i = 0; i < r.width; ++i) {
        const float gate = load(z[i]), s = open[i], activated = gate * s, in = load(x[i]);
        const float u = in * activated, du = rstd * (w[i] * load(dy[i])) - along * u;
        if constexpr (again) store(u * rstd * w[i], y[i]);
        store(du * activated, dy[i]);
        store(du * in * (s * (1.0F + gate * (1.0F - s))), dz[i]);
      }
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
void over_rows(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups,
               double eps, const at::Tensor& dy, const at::Tensor& dz, const at::Tensor& y,
               const Kernel& kernel) {
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
                     .groups = groups,
                     .width = x.size(1) / groups,
                     .z_row = z.stride(0),
                     .dz_row = dz.defined() ? dz.stride(0) : 0});
    });
  });
}

}  // namespace

void norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups,
                   double eps, const at::Tensor& y) {
  over_rows(x, z, weight, groups, eps, {}, {}, y, [](const auto& rows) { forward(rows); });
}

void norm_of_gated_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                            const at::Tensor& weight, std::int64_t groups, double eps, const at::Tensor& dz,
                            const at::Tensor& y) {
  over_rows(x, z, weight, groups, eps, dy, dz, y, [](const auto& rows) { backward(rows); });
}

}  // namespace lorikeet::ops::cpu
