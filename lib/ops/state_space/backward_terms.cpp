#include "ops/state_space/backward_terms.h"

namespace lorikeet::ops::cpu::state {
namespace {

using vector::Bf16;
using vector::kLanes;

LORIKEET_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  float lanes[kLanes] = {}, sum = 0;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <typename T>
LORIKEET_INLINE void store_steps(const Steps& steps, const Head& head, const StepSums& sums,
                                 std::int64_t count, T* out, std::int64_t stride) {
  double dg = sums.whole;
  for (std::int64_t i = count - 1; i >= 0; --i) {
    dg += sums.sum[i];
    const float d_step = sums.dots[i] - head.rate * static_cast<float>(dg);
    vector::store(d_step * steps.slope[i], out[i * stride]);
  }
}

template <typename T>
LORIKEET_INLINE void sum_of_parts(const float* parts, std::int64_t count, std::int64_t part,
                                  std::int64_t rows, std::int64_t width, T* out, std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* const from = parts + row * width;
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = from[i];
      for (std::int64_t p = 1; p < count; ++p) sum += from[p * part + i];
      vector::store(sum, out[row * stride + i]);
    }
  }
}

}  // namespace

// What a pair of tokens i > j adds to dG_i and takes from dG_j must cancel in dg_t for t <= j, however large
// it is beside the rest: rows and columns are summed in fp64.
LORIKEET_VECTOR_CLONES void add_tile_gradients(const float* __restrict__ products,
                                               const float* __restrict__ scores,
                                               const float* __restrict__ decays, std::int64_t count,
                                               float* __restrict__ d_scores, StepSums& sums) {
  double columns[kChunk] = {};
  const std::int64_t rows = padded(count);
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int64_t row = i * kChunk;
    double lanes[kLanes] = {};
    for (std::int32_t begin = 0; begin <= i; begin += kLanes) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        const std::int32_t j = begin + lane;
        const std::int64_t at = row + j;
        const float p = products[at] * decays[at];
        const double x = j < i ? p * scores[at] : 0.0F;
        d_scores[at] += p;
        columns[j] += x;
        lanes[lane] += x;
      }
    }
    for (const double lane : lanes) sums.sum[i] += lane;
  }
  for (std::int64_t j = 0; j < rows; ++j) sums.sum[j] -= columns[j];
}

LORIKEET_VECTOR_CLONES void add_state_terms(const float* __restrict__ rows, const float* __restrict__ terms,
                                            std::int64_t count, std::int64_t width,
                                            float* __restrict__ d_rows, StepSums& sums) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t at = row * width;
    sums.sum[row] += dot(rows + at, terms + at, width);
    for (std::int64_t i = at; i < at + width; ++i) d_rows[i] += terms[i];
  }
}

LORIKEET_VECTOR_CLONES void scale_tail(const float* __restrict__ x, const Steps& steps, std::int64_t count,
                                       std::int64_t width, float* __restrict__ du, StepSums& sums) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t at = row * width;
    const float factor = steps.to_end[row];
    for (std::int64_t i = at; i < at + width; ++i) du[i] *= factor;
    const double tail = steps.step[row] * dot(x + at, du + at, width);
    sums.sum[row] -= tail;
    sums.whole += tail;
  }
}

LORIKEET_VECTOR_CLONES void finish_rows(const float* __restrict__ x, const float* __restrict__ dout,
                                        const Steps& steps, float passed, std::int64_t count,
                                        std::int64_t width, float* __restrict__ du, StepSums& sums) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t at = row * width;
    const float step = steps.step[row];
    sums.dots[row] = dot(x + at, du + at, width);
    for (std::int64_t i = at; i < at + width; ++i) du[i] = step * du[i] + passed * dout[i];
  }
}

LORIKEET_VECTOR_CLONES void store_step_gradients(const Steps& steps, const Head& head, const StepSums& sums,
                                                 std::int64_t count, float* out, std::int64_t stride) {
  store_steps(steps, head, sums, count, out, stride);
}
LORIKEET_VECTOR_CLONES void store_step_gradients(const Steps& steps, const Head& head, const StepSums& sums,
                                                 std::int64_t count, Bf16* out, std::int64_t stride) {
  store_steps(steps, head, sums, count, out, stride);
}

LORIKEET_VECTOR_CLONES void sum_parts(const float* __restrict__ parts, std::int64_t count, std::int64_t part,
                                      std::int64_t rows, std::int64_t width, float* __restrict__ out,
                                      std::int64_t stride) {
  sum_of_parts(parts, count, part, rows, width, out, stride);
}
LORIKEET_VECTOR_CLONES void sum_parts(const float* __restrict__ parts, std::int64_t count, std::int64_t part,
                                      std::int64_t rows, std::int64_t width, Bf16* __restrict__ out,
                                      std::int64_t stride) {
  sum_of_parts(parts, count, part, rows, width, out, stride);
}

}  // namespace lorikeet::ops::cpu::state
