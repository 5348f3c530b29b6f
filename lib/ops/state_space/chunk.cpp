#include "ops/state_space/chunk.h"

#include <ATen/core/Tensor.h>

#include <cmath>

#include "ops/vector_log.h"

namespace lorikeet::ops::cpu::state {
namespace {

template <typename T>
LORIKEET_INLINE void read(const T* dt, std::int64_t stride, std::int64_t rows, const Head& head, Steps& out) {
  float numbers[kChunk] = {}, g[kChunk];
  for (std::int64_t i = 0; i < rows; ++i) numbers[i] = vector::load(dt[i * stride]) + head.bias;
  const std::int64_t all = padded(rows);
  for (std::int64_t i = 0; i < all; ++i) {
    out.step[i] = i < rows ? vector::softplus(numbers[i]) : 0.0F;
    out.slope[i] = vector::sigmoid(numbers[i]);
    g[i] = -head.rate * out.step[i];
    out.decay[i] = vector::exp(g[i]);
  }
  chunked::sum_decays(g, rows, out);
}

}  // namespace

std::vector<Head> read_heads(const StateSpaceNumbers& numbers) {
  const auto dense = [](const at::Tensor& of_heads) { return of_heads.to(at::kFloat).contiguous(); };
  const at::Tensor a_log = dense(numbers.a_log), bias = dense(numbers.dt_bias), d = dense(numbers.d);
  std::vector<Head> heads;
  heads.reserve(static_cast<std::size_t>(a_log.numel()));
  for (std::int64_t head = 0; head < a_log.numel(); ++head) {
    heads.push_back({.rate = std::exp(a_log.const_data_ptr<float>()[head]),
                     .bias = bias.const_data_ptr<float>()[head],
                     .passed = d.const_data_ptr<float>()[head]});
  }
  return heads;
}

LORIKEET_VECTOR_CLONES void read_steps(const float* dt, std::int64_t stride, std::int64_t rows,
                                       const Head& head, Steps& out) {
  read(dt, stride, rows, head, out);
}
LORIKEET_VECTOR_CLONES void read_steps(const vector::Bf16* dt, std::int64_t stride, std::int64_t rows,
                                       const Head& head, Steps& out) {
  read(dt, stride, rows, head, out);
}

void multiply_group(const Widths& widths, std::int64_t count, const GroupChunk& chunk) {
  const std::int64_t rows = padded(count);
  chunked::transpose(rows, widths.state, {chunk.b, widths.state}, {chunk.b_lanes, kChunk});
  chunked::multiply_to_lower(rows, widths.state, chunked::rows_of(chunk.c, widths.state),
                             {chunk.b_lanes, kChunk}, {chunk.scores, kChunk});
}

void advance_state(const GroupChunk& chunk, const Widths& widths, std::int64_t count, const Steps& steps,
                   bool fresh, float* u, float* state) {
  chunked::scale_rows(steps.to_end, count, widths.head, u);
  chunked::multiply(widths.state, widths.head, padded(count), chunked::columns_of(chunk.b, widths.state),
                    {u, widths.head}, fresh ? 0.0F : steps.whole, {state, widths.head});
}

}  // namespace lorikeet::ops::cpu::state
