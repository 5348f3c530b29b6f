#include "ops/activation/cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 8;

// The function's value and its derivative.
struct Activated {
  float value, slope;
};

template <Activation kind>
LORIKEET_INLINE Activated activate(float x) {
  if constexpr (kind == Activation::kSilu) {
    const float s = vector::sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  } else if constexpr (kind == Activation::kGeluTanh) {
    constexpr float kBeta = 0.7978845608F, kCubic = 0.044715F;  // sqrt(2 / pi)
    const float t = vector::tanh(kBeta * (x + kCubic * x * x * x));
    const float inner = kBeta * (1.0F + 3.0F * kCubic * x * x);
    return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner};
  } else {
    const float cdf = 0.5F * std::erfc(-x * 0.70710678F);
    return {x * cdf, cdf + x * 0.39894228F * vector::exp(-0.5F * x * x)};
  }
}

template <Activation kind, typename T>
LORIKEET_INLINE void gated_forward_rows(const T* gate_up, T* out, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gate = gate_up + row * 2 * width;
    const T* up = gate + width;
    T* to = out + row * width;
    for (std::int64_t i = 0; i < width; ++i) store(activate<kind>(load(gate[i])).value * load(up[i]), to[i]);
  }
}

// Over gate and up: an element is read before it is written, and the two halves don't overlap. Left to check
// that when it runs, GCC's loop over bf16 goes unvectorised: 6 times slower.
template <Activation kind, typename T>
LORIKEET_INLINE void gated_backward_rows(const T* dy, T* gate_up, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* gate = gate_up + row * 2 * width;
    T* up = gate + width;
    const T* grad = dy + row * width;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      const Activated activated = activate<kind>(load(gate[i]));
      const float d = load(grad[i]);
      store(d * load(up[i]) * activated.slope, gate[i]);
      store(d * activated.value, up[i]);
    }
  }
}

template <Activation kind, typename T>
LORIKEET_INLINE void plain_forward_row(const T* x, T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(activate<kind>(load(x[i])).value, out[i]);
}

template <Activation kind, typename T>
LORIKEET_INLINE void plain_backward_row(const T* dy, T* x, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) store(load(dy[i]) * activate<kind>(load(x[i])).slope, x[i]);
}

// Calls f with the kind as a constant.
template <typename F>
LORIKEET_INLINE void with_kind(Activation kind, F f) {
  switch (kind) {
    case Activation::kSilu: return f.template operator()<Activation::kSilu>();
    case Activation::kGeluTanh: return f.template operator()<Activation::kGeluTanh>();
    case Activation::kGelu: return f.template operator()<Activation::kGelu>();
  }
}

template <typename T>
struct GatedForward {
  const T* gate_up;
  T* out;
  std::int64_t rows, width;
};
template <typename T>
struct GatedBackward {
  const T* dy;
  T* gate_up;
  std::int64_t rows, width;
};
template <typename T>
struct PlainForward {
  const T* x;
  T* out;
  std::int64_t count;
};
template <typename T>
struct PlainBackward {
  const T* dy;
  T* x;
  std::int64_t count;
};

template <typename T>
LORIKEET_INLINE void any(const GatedForward<T>& a, Activation kind) {
  with_kind(
      kind, [&]<Activation k>()
                __attribute__((always_inline)) { gated_forward_rows<k>(a.gate_up, a.out, a.rows, a.width); });
}
template <typename T>
LORIKEET_INLINE void any(const GatedBackward<T>& a, Activation kind) {
  with_kind(
      kind, [&]<Activation k>()
                __attribute__((always_inline)) { gated_backward_rows<k>(a.dy, a.gate_up, a.rows, a.width); });
}
template <typename T>
LORIKEET_INLINE void any(const PlainForward<T>& a, Activation kind) {
  with_kind(
      kind, [&]<Activation k>()
                __attribute__((always_inline)) { plain_forward_row<k>(a.x, a.out, a.count); });
}
template <typename T>
LORIKEET_INLINE void any(const PlainBackward<T>& a, Activation kind) {
  with_kind(
      kind, [&]<Activation k>()
                __attribute__((always_inline)) { plain_backward_row<k>(a.dy, a.x, a.count); });
}

LORIKEET_VECTOR_CLONES void run(const GatedForward<float>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const GatedForward<Bf16>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const GatedBackward<float>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const GatedBackward<Bf16>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const PlainForward<float>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const PlainForward<Bf16>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const PlainBackward<float>& a, Activation kind) { any(a, kind); }
LORIKEET_VECTOR_CLONES void run(const PlainBackward<Bf16>& a, Activation kind) { any(a, kind); }

}  // namespace

void gated_forward(const at::Tensor& gate_up, Activation activation, at::Tensor& out) {
  const auto width = out.size(1);
  vector::dispatch(gate_up, [&]<typename T>(T*) {
    at::parallel_for(0, out.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      run(GatedForward<T>{vector::data<T>(gate_up) + begin * 2 * width, vector::data<T>(out) + begin * width,
                          end - begin, width},
          activation);
    });
  });
}

void gated_backward(const at::Tensor& dy, Activation activation, at::Tensor& gate_up) {
  const auto width = dy.size(1);
  vector::dispatch(gate_up, [&]<typename T>(T*) {
    at::parallel_for(0, dy.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      run(GatedBackward<T>{vector::data<T>(dy) + begin * width, vector::data<T>(gate_up) + begin * 2 * width,
                           end - begin, width},
          activation);
    });
  });
}

void plain_forward(const at::Tensor& x, Activation activation, at::Tensor& out) {
  const auto width = x.size(1);
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      run(PlainForward<T>{vector::data<T>(x) + begin * width, vector::data<T>(out) + begin * width,
                          (end - begin) * width},
          activation);
    });
  });
}

void plain_backward(const at::Tensor& dy, Activation activation, at::Tensor& x) {
  const auto width = x.size(1);
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      run(PlainBackward<T>{vector::data<T>(dy) + begin * width, vector::data<T>(x) + begin * width,
                           (end - begin) * width},
          activation);
    });
  });
}

}  // namespace lorikeet::ops::cpu
