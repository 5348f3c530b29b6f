#include "ops/norm/cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/vector.h"
#include "ops/vector_rows.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;
using vector::sum_of;

constexpr std::int64_t kGrainRows = 32;

// Rows that lie next to each other; what is absent is null. Layer norm has a mean.
template <typename T>
struct Forward {
  const T *x, *delta;
  const float *w, *bias;
  float eps;
  T *sum, *y;
  float *mean, *rstd;
  std::int64_t rows, width;
};

template <typename T>
struct Backward {
  const T *dy, *extra, *x;
  const float *w, *bias, *mean, *rstd;
  T *dx, *again;
  std::int64_t rows, width;
};

// Layer norm subtracts the row's mean; for RMS norm there is none, and c is x itself below.
template <bool centred, typename T>
LORIKEET_INLINE float centre(T x, float mean) {
  if constexpr (centred) return load(x) - mean;
  return load(x);
}

// y of a row whose statistics are known.
template <bool centred, typename T>
LORIKEET_INLINE void write_row(const T* x, float mean, float scale, const float* w, const float* bias,
                               std::int64_t width, T* y) {
  if (bias == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) store(centre<centred>(x[i], mean) * scale * w[i], y[i]);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i)
      store(centre<centred>(x[i], mean) * scale * w[i] + bias[i], y[i]);
  }
}

template <bool centred, typename T>
LORIKEET_INLINE void forward_row(const Forward<T>& a, std::int64_t row) {
  const auto width = a.width;
  const auto n = static_cast<float>(width);
  const T* in = a.x + row * width;
  if (a.delta != nullptr) {
    const T* add = a.delta + row * width;
    T* out = a.sum + row * width;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) store(load(in[i]) + load(add[i]), out[i]);
    in = out;
  }
  float mean = 0;
  if constexpr (centred) {
    mean = sum_of(width, [&](std::int64_t i) __attribute__((always_inline)) { return load(in[i]); }) / n;
    a.mean[row] = mean;
  }
  const float squares = sum_of(
      width, [&](std::int64_t i) __attribute__((always_inline)) {
        return centre<centred>(in[i], mean) * centre<centred>(in[i], mean);
      });
  const float scale = 1.0F / std::sqrt(squares / n + a.eps);
  a.rstd[row] = scale;
  write_row<centred>(in, mean, scale, a.w, a.bias, width, a.y + row * width);
}

// With g = w dy and c = x - mean:  dx = rstd (g - mean(g)) - c rstd^3 mean(g c), without mean(g) for RMS.
// dx may be dy: each element is read before it is written, and the rows' sums before any.
template <bool centred, typename T>
LORIKEET_INLINE void backward_row(const Backward<T>& a, std::int64_t row) {
  const auto width = a.width;
  const auto n = static_cast<float>(width);
  const T* g = a.dy + row * width;
  const T* in = a.x + row * width;
  const T* extra = a.extra == nullptr ? nullptr : a.extra + row * width;
  T* out = a.dx + row * width;
  const float* w = a.w;
  const float scale = a.rstd[row];
  float mean = 0, shift = 0;
  if constexpr (centred) {
    mean = a.mean[row];
    shift =
        scale *
        sum_of(width, [&](std::int64_t i) __attribute__((always_inline)) { return load(g[i]) * w[i]; }) / n;
  }
  const float dot = sum_of(
      width, [&](std::int64_t i)
                 __attribute__((always_inline)) { return load(g[i]) * w[i] * centre<centred>(in[i], mean); });
  const float along = scale * scale * scale * dot / n;
  const auto gradient = [&](std::int64_t i) __attribute__((always_inline)) {
    const float direct = scale * w[i] * load(g[i]);
    return (centred ? direct - shift : direct) - along * centre<centred>(in[i], mean);
  };
  if (extra == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) store(gradient(i), out[i]);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) store(gradient(i) + load(extra[i]), out[i]);
  }
  if (a.again != nullptr) write_row<centred>(in, mean, scale, w, a.bias, width, a.again + row * width);
}

template <typename T>
LORIKEET_INLINE void run_rows(const Forward<T>& a) {
  for (std::int64_t row = 0; row < a.rows; ++row)
    a.mean == nullptr ? forward_row<false>(a, row) : forward_row<true>(a, row);
}
template <typename T>
LORIKEET_INLINE void run_rows(const Backward<T>& a) {
  for (std::int64_t row = 0; row < a.rows; ++row)
    a.mean == nullptr ? backward_row<false>(a, row) : backward_row<true>(a, row);
}

LORIKEET_VECTOR_CLONES void run(const Forward<float>& a) { run_rows(a); }
LORIKEET_VECTOR_CLONES void run(const Forward<Bf16>& a) { run_rows(a); }
LORIKEET_VECTOR_CLONES void run(const Backward<float>& a) { run_rows(a); }
LORIKEET_VECTOR_CLONES void run(const Backward<Bf16>& a) { run_rows(a); }

// Where the rows of token `token` begin, in a tensor that may be undefined. Tokens may be strided.
template <typename T>
T* rows_from(const at::Tensor& tensor, std::int64_t token) {
  return tensor.defined() ? vector::data<T>(tensor) + token * tensor.stride(0) : nullptr;
}

std::int64_t heads_of(const at::Tensor& x) { return x.dim() == 3 ? x.size(1) : 1; }

// Calls f(first token, its number of rows) over all tokens: many at once where all `tensors` are dense.
template <typename F>
void for_rows(std::initializer_list<const at::Tensor*> tensors, const F& f) {
  const at::Tensor& x = **tensors.begin();
  bool dense = true;
  for (const auto* tensor : tensors) dense = dense && (!tensor->defined() || tensor->is_contiguous());
  const auto heads = heads_of(x);
  at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
    if (dense) {
      f(begin, (end - begin) * heads);
    } else {
      for (std::int64_t token = begin; token < end; ++token) f(token, heads);
    }
  });
}

float* statistic(const at::Tensor& values, std::int64_t row) {
  return values.defined() ? vector::data<float>(values) + row : nullptr;
}

}  // namespace

void norm_forward(const at::Tensor& x, const at::Tensor& delta, const NormScale& scale, double eps,
                  at::Tensor& sum, at::Tensor& y, NormStatistics& statistics) {
  vector::dispatch(x, [&]<typename T>(T*) {
    for_rows({&x, &delta, &sum, &y}, [&](std::int64_t token, std::int64_t rows) {
      const auto first = token * heads_of(x);
      run(Forward<T>{.x = rows_from<T>(x, token),
                     .delta = rows_from<T>(delta, token),
                     .w = vector::data<float>(scale.weight),
                     .bias = statistic(scale.bias, 0),
                     .eps = static_cast<float>(eps),
                     .sum = rows_from<T>(sum, token),
                     .y = rows_from<T>(y, token),
                     .mean = statistic(statistics.mean, first),
                     .rstd = statistic(statistics.rstd, first),
                     .rows = rows,
                     .width = x.size(-1)});
    });
  });
}

void norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x, const NormScale& scale,
                   const NormStatistics& statistics, at::Tensor& dx, const at::Tensor& again) {
  vector::dispatch(x, [&]<typename T>(T*) {
    for_rows({&x, &dy, &extra, &dx, &again}, [&](std::int64_t token, std::int64_t rows) {
      const auto first = token * heads_of(x);
      run(Backward<T>{.dy = rows_from<T>(dy, token),
                      .extra = rows_from<T>(extra, token),
                      .x = rows_from<T>(x, token),
                      .w = vector::data<float>(scale.weight),
                      .bias = statistic(scale.bias, 0),
                      .mean = statistic(statistics.mean, first),
                      .rstd = statistic(statistics.rstd, first),
                      .dx = rows_from<T>(dx, token),
                      .again = rows_from<T>(again, token),
                      .rows = rows,
                      .width = x.size(-1)});
    });
  });
}

}  // namespace lorikeet::ops::cpu
