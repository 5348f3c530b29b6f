#include "ops/sigmoid_gate/cpu.h"

#include <ATen/Parallel.h>

#include "ops/vector.h"
#include "ops/vector_rows.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::load;
using vector::rows_from;
using vector::store;

constexpr std::int64_t kGrainRows = 8;

// Rows of one thread; those of all but the gate and its gradient follow each other. What is absent is null.
template <typename T>
struct Rows {
  const T *x, *gate;
  T *dy, *dgate, *y;
  std::int64_t rows, width;
  std::int64_t gate_row, dgate_row;  // elements from one row to the next
};

template <typename T>
LORIKEET_INLINE void forward_rows(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const T* x = r.x + row * r.width;
    const T* gate = r.gate + row * r.gate_row;
    T* y = r.y + row * r.width;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < r.width; ++i) store(load(x[i]) * vector::sigmoid(load(gate[i])), y[i]);
  }
}

// Over dy and perhaps the gate: an element is read before it is written.
template <bool again, typename T>
LORIKEET_INLINE void backward_loop(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const T* x = r.x + row * r.width;
    const T* gate = r.gate + row * r.gate_row;
    T* dy = r.dy + row * r.width;
    T* dgate = r.dgate + row * r.dgate_row;
    T* y = again ? r.y + row * r.width : nullptr;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < r.width; ++i) {
      const float s = vector::sigmoid(load(gate[i])), product = load(x[i]) * s, d = load(dy[i]);
      store(d * product * (1.0F - s), dgate[i]);
      store(d * s, dy[i]);
      if constexpr (again) store(product, y[i]);
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

// Calls kernel(rows) for the rows of each thread. dy and dgate may be undefined.
template <typename Kernel>
void over_rows(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& dy, const at::Tensor& dgate,
               const at::Tensor& y, const Kernel& kernel) {
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      kernel(Rows<T>{.x = rows_from<T>(x, begin),
                     .gate = rows_from<T>(gate, begin),
                     .dy = rows_from<T>(dy, begin),
                     .dgate = rows_from<T>(dgate, begin),
                     .y = rows_from<T>(y, begin),
                     .rows = end - begin,
                     .width = x.size(1),
                     .gate_row = gate.stride(0),
                     .dgate_row = dgate.defined() ? dgate.stride(0) : 0});
    });
  });
}

}  // namespace

void sigmoid_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  over_rows(x, gate, {}, {}, y, [](const auto& rows) { forward(rows); });
}

void sigmoid_gate_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                           const at::Tensor& dgate, const at::Tensor& y) {
  over_rows(x, gate, dy, dgate, y, [](const auto& rows) { backward(rows); });
}

}  // namespace lorikeet::ops::cpu
