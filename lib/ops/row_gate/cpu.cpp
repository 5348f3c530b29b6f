#include "ops/row_gate/cpu.h"

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

// Rows of one thread.
template <typename T>
struct Rows {
  const T *x, *gate;
  T* y;
  std::int64_t rows, width;
};

template <bool add, typename T>
LORIKEET_INLINE void gated_rows(const Rows<T>& r) {
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const T* x = r.x + row * r.width;
    T* y = r.y + row * r.width;
    const float s = vector::sigmoid(load(r.gate[row]));
#pragma GCC ivdep
    for (std::int64_t i = 0; i < r.width; ++i) store(load(x[i]) * s + (add ? load(y[i]) : 0.0F), y[i]);
  }
}

LORIKEET_VECTOR_CLONES void gate(const Rows<float>& rows) { gated_rows<false>(rows); }
LORIKEET_VECTOR_CLONES void gate(const Rows<Bf16>& rows) { gated_rows<false>(rows); }
LORIKEET_VECTOR_CLONES void add_gate(const Rows<float>& rows) { gated_rows<true>(rows); }
LORIKEET_VECTOR_CLONES void add_gate(const Rows<Bf16>& rows) { gated_rows<true>(rows); }

// Calls kernel(rows) for the rows of each thread.
template <typename Kernel>
void over_rows(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y, const Kernel& kernel) {
  vector::dispatch(x, [&]<typename T>(T*) {
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      kernel(Rows<T>{.x = rows_from<T>(x, begin),
                     .gate = vector::data<T>(gate) + begin,
                     .y = rows_from<T>(y, begin),
                     .rows = end - begin,
                     .width = x.size(1)});
    });
  });
}

}  // namespace

void row_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  over_rows(x, gate, y, [](const auto& rows) { cpu::gate(rows); });
}

void add_row_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  over_rows(x, gate, y, [](const auto& rows) { add_gate(rows); });
}

}  // namespace lorikeet::ops::cpu
