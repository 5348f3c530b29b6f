#include "ops/activation/cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>

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
    const float e = vector::exp(-0.5F * x * x), cdf = vector::normal_cdf(x, e);
    return {x * cdf, cdf + x * 0.39894228F * e};
  }
}

// A gated activation's value, and the gradients of gate and up.
struct GatedActivated {
  float value, gate, up;
};

// Activation::kClampedSwiglu; `d`: its gradient.
LORIKEET_INLINE GatedActivated clamped_swiglu(float gate, float up, float d) {
  constexpr auto kLimit = static_cast<float>(kSwigluLimit), kAlpha = static_cast<float>(kSwigluAlpha);
  const float g = gate > kLimit ? kLimit : gate;
  const float below = up > kLimit ? kLimit : up, u = below < -kLimit ? -kLimit : below;
  const float of_gate = gate <= kLimit ? d : 0.0F, of_up = up <= kLimit && up >= -kLimit ? d : 0.0F;
  const float s = vector::sigmoid(kAlpha * g), value = g * s;
  return {(u + 1.0F) * value, of_gate * (u + 1.0F) * (s + kAlpha * value * (1.0F - s)), of_up * value};
}

template <Activation kind>
LORIKEET_INLINE float gated(float gate, float up) {
  if constexpr (kind == Activation::kClampedSwiglu) {
    return clamped_swiglu(gate, up, 0.0F).value;
  } else {
    return activate<kind>(gate).value * up;
  }
}

// The same with the gradients of gate and up where its own is `d`.
template <Activation kind>
LORIKEET_INLINE GatedActivated gated_with_gradients(float gate, float up, float d) {
  if constexpr (kind == Activation::kClampedSwiglu) {
    return clamped_swiglu(gate, up, d);
  } else {
    const Activated activated = activate<kind>(gate);
    return {activated.value * up, d * up * activated.slope, d * activated.value};
  }
}

// Rows of one thread. `width` is that of one part: rows of gate and up have two.
template <typename T>
struct Rows {
  const T* in;
  T* out;
  T* again;  // of backward: where forward's result goes, or nullptr
  std::int64_t rows, width;
};

template <Activation kind, typename T>
LORIKEET_INLINE void gated_forward_rows(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const T* gate = r.in + row * 2 * r.width;
    const T* up = gate + r.width;
    T* to = r.out + row * r.width;
    for (std::int64_t i = 0; i < r.width; ++i) store(gated<kind>(load(gate[i]), load(up[i])), to[i]);
  }
}

// Over gate and up: an element is read before it is written, and the two halves don't overlap. Left to check
// that when it runs, GCC's loop over bf16 goes unvectorised: 6 times slower.
template <Activation kind, bool again, typename T>
LORIKEET_INLINE void gated_backward_loop(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    T* gate = r.out + row * 2 * r.width;
    T* up = gate + r.width;
    T* product = again ? r.again + row * r.width : nullptr;
    const T* grad = r.in + row * r.width;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < r.width; ++i) {
      const GatedActivated activated = gated_with_gradients<kind>(load(gate[i]), load(up[i]), load(grad[i]));
      store(activated.gate, gate[i]);
      store(activated.up, up[i]);
      if constexpr (again) store(activated.value, product[i]);
    }
  }
}

template <Activation kind, typename T>
LORIKEET_INLINE void gated_backward_rows(const Rows<T>& r) {
  if (r.again != nullptr) {
    gated_backward_loop<kind, true>(r);
  } else {
    gated_backward_loop<kind, false>(r);
  }
}

template <Activation kind, typename T>
LORIKEET_INLINE void plain_forward_rows(const Rows<T>& r) {
  const std::int64_t count = r.rows * r.width;
  for (std::int64_t i = 0; i < count; ++i) store(activate<kind>(load(r.in[i])).value, r.out[i]);
}

template <Activation kind, bool again, typename T>
LORIKEET_INLINE void plain_backward_loop(const Rows<T>& r) {
  const std::int64_t count = r.rows * r.width;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const Activated activated = activate<kind>(load(r.out[i]));
    store(load(r.in[i]) * activated.slope, r.out[i]);
    if constexpr (again) store(activated.value, r.again[i]);
  }
}

template <Activation kind, typename T>
LORIKEET_INLINE void plain_backward_rows(const Rows<T>& r) {
  if (r.again != nullptr) {
    plain_backward_loop<kind, true>(r);
  } else {
    plain_backward_loop<kind, false>(r);
  }
}

// Calls f with the kind, which is of one number, as a constant.
template <typename F>
LORIKEET_INLINE void with_plain_kind(Activation kind, F f) {
  switch (kind) {
    case Activation::kSilu: return f.template operator()<Activation::kSilu>();
    case Activation::kGeluTanh: return f.template operator()<Activation::kGeluTanh>();
    case Activation::kGelu: return f.template operator()<Activation::kGelu>();
    case Activation::kClampedSwiglu: return;
  }
}

// The same for every kind.
template <typename F>
LORIKEET_INLINE void with_gated_kind(Activation kind, F f) {
  if (kind == Activation::kClampedSwiglu) return f.template operator()<Activation::kClampedSwiglu>();
  with_plain_kind(kind, f);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type, form and pass are parts of names
#define LORIKEET_ACTIVATION_KERNEL(form, pass, T)                                                     \
  LORIKEET_VECTOR_CLONES void form##_##pass(const Rows<T>& rows, Activation kind) {                   \
    with_##form##_kind(                                                                               \
        kind, [&]<Activation k>() __attribute__((always_inline)) { form##_##pass##_rows<k>(rows); }); \
  }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_ACTIVATION_KERNEL(gated, forward, float)
LORIKEET_ACTIVATION_KERNEL(gated, forward, Bf16)
LORIKEET_ACTIVATION_KERNEL(gated, backward, float)
LORIKEET_ACTIVATION_KERNEL(gated, backward, Bf16)
LORIKEET_ACTIVATION_KERNEL(plain, forward, float)
LORIKEET_ACTIVATION_KERNEL(plain, forward, Bf16)
LORIKEET_ACTIVATION_KERNEL(plain, backward, float)
LORIKEET_ACTIVATION_KERNEL(plain, backward, Bf16)
#undef LORIKEET_ACTIVATION_KERNEL

// Calls kernel(rows) for the rows of both, and of `again`, which is as wide as `in`, unless it is null. Where
// rows are [gate | up], one of `in` and `out` is twice as wide.
template <typename Kernel>
void over_rows(const at::Tensor& in, at::Tensor& out, at::Tensor* again, const Kernel& kernel) {
  const std::int64_t in_width = in.size(1), out_width = out.size(1);
  vector::dispatch(in, [&]<typename T>(T*) {
    at::parallel_for(0, in.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      kernel(Rows<T>{.in = vector::data<T>(in) + begin * in_width,
                     .out = vector::data<T>(out) + begin * out_width,
                     .again = again != nullptr ? vector::data<T>(*again) + begin * in_width : nullptr,
                     .rows = end - begin,
                     .width = std::min(in_width, out_width)});
    });
  });
}

}  // namespace

void gated_forward(const at::Tensor& gate_up, Activation activation, at::Tensor& out) {
  over_rows(gate_up, out, nullptr, [&](const auto& rows) { gated_forward(rows, activation); });
}

void gated_backward(const at::Tensor& dy, Activation activation, at::Tensor& gate_up, at::Tensor* again) {
  over_rows(dy, gate_up, again, [&](const auto& rows) { gated_backward(rows, activation); });
}

void plain_forward(const at::Tensor& x, Activation activation, at::Tensor& out) {
  over_rows(x, out, nullptr, [&](const auto& rows) { plain_forward(rows, activation); });
}

void plain_backward(const at::Tensor& dy, Activation activation, at::Tensor& x, at::Tensor* again) {
  over_rows(dy, x, again, [&](const auto& rows) { plain_backward(rows, activation); });
}

}  // namespace lorikeet::ops::cpu
