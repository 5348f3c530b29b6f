// Three passes over a row while it is in cache: largest logit, exponentials and their sum, gradient. The
// exponentials are kept beside the row, in fp32, so that 16-bit rows lose nothing in between.
#include "ops/linear_cross_entropy/cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::kLanes;

// What turns a raw logit into the softmax's argument.
struct Scaling {
  float scale, cap;
};

template <bool capped, typename T>
LORIKEET_INLINE float argument(T raw, const Scaling& scaling) {
  const float scaled = vector::load(raw) * scaling.scale;
  return capped ? scaling.cap * vector::tanh(scaled / scaling.cap) : scaled;
}

template <bool capped, typename T>
LORIKEET_INLINE float largest(const T* row, std::int64_t n, const Scaling& scaling) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = argument<capped>(row[0], scaling);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = argument<capped>(row[i + lane], scaling);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float result = lanes[0];
  for (const float lane : lanes) result = lane > result ? lane : result;
  for (; i < n; ++i) {
    const float value = argument<capped>(row[i], scaling);
    result = value > result ? value : result;
  }
  return result;
}

// Writes e^(argument - max) of each element to `exponentials` and returns their sum.
template <bool capped, typename T>
LORIKEET_INLINE float sum_of_exponentials(const T* row, std::int64_t n, const Scaling& scaling, float max,
                                          float* __restrict__ exponentials) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float e = vector::exp(argument<capped>(row[i + lane], scaling) - max);
      exponentials[i + lane] = e;
      lanes[lane] += e;
    }
  }
  float sum = 0;
  for (; i < n; ++i) {
    exponentials[i] = vector::exp(argument<capped>(row[i], scaling) - max);
    sum += exponentials[i];
  }
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <bool capped, typename T>
LORIKEET_INLINE void write_gradient(T* __restrict__ row, const float* __restrict__ exponentials,
                                    std::int64_t n, std::int64_t label, const Scaling& scaling, float sum,
                                    float factor) {
  const float share = 1.0F / sum;
  // The label's element is the only one with a term of its own: done first, from the untouched logit.
  const float capped_label = capped ? argument<capped>(row[label], scaling) / scaling.cap : 0.0F;
  const float label_gradient =
      (exponentials[label] * share - 1.0F) * (1.0F - capped_label * capped_label) * factor;
  // A copy: the row's elements could be what the reference refers to, and nothing would be vectorised.
  const Scaling own = scaling;
  for (std::int64_t i = 0; i < n; ++i) {
    float gradient = exponentials[i] * share * factor;
    if (capped) {
      const float value = argument<capped>(row[i], own);
      gradient *= 1.0F - value * value / (own.cap * own.cap);
    }
    vector::store(gradient, row[i]);
  }
  vector::store(label_gradient, row[label]);
}

// Rows of logits that lie next to each other.
template <typename T>
struct Chunk {
  T* logits;
  const std::int64_t* labels;
  float* nll;
  std::int64_t rows, width;
  Scaling scaling;
  bool gradient;
  float factor;
  float* exponentials;  // of one row
};

template <bool capped, typename T>
LORIKEET_INLINE void run_rows(const Chunk<T>& chunk) {
  const Scaling& scaling = chunk.scaling;
  for (std::int64_t r = 0; r < chunk.rows; ++r) {
    T* row = chunk.logits + r * chunk.width;
    const std::int64_t label = chunk.labels[r];
    const float max = largest<capped>(row, chunk.width, scaling);
    const float sum = sum_of_exponentials<capped>(row, chunk.width, scaling, max, chunk.exponentials);
    chunk.nll[r] = std::log(sum) + max - argument<capped>(row[label], scaling);
    if (chunk.gradient)
      write_gradient<capped>(row, chunk.exponentials, chunk.width, label, scaling, sum, chunk.factor);
  }
}

LORIKEET_VECTOR_CLONES void run(const Chunk<float>& chunk) { run_rows<false>(chunk); }
LORIKEET_VECTOR_CLONES void run(const Chunk<Bf16>& chunk) { run_rows<false>(chunk); }
LORIKEET_VECTOR_CLONES void run_capped(const Chunk<float>& chunk) { run_rows<true>(chunk); }
LORIKEET_VECTOR_CLONES void run_capped(const Chunk<Bf16>& chunk) { run_rows<true>(chunk); }

}  // namespace

void softmax_nll(at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                 bool gradient, double grad_scale, at::Tensor& nll) {
  const auto width = logits.size(1);
  const auto exponentials =
      at::empty({vector::threads_for(logits), width}, logits.options().dtype(at::kFloat));
  vector::dispatch(logits, [&]<typename T>(T*) {
    at::parallel_for(0, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      const Chunk<T> chunk{
          .logits = vector::data<T>(logits) + begin * width,
          .labels = labels.const_data_ptr<std::int64_t>() + begin,
          .nll = nll.data_ptr<float>() + begin,
          .rows = end - begin,
          .width = width,
          .scaling = {static_cast<float>(options.scale), static_cast<float>(options.soft_cap)},
          .gradient = gradient,
          .factor = static_cast<float>(grad_scale * options.scale),
          .exponentials = exponentials.data_ptr<float>() + at::get_thread_num() * width};
      options.soft_cap > 0 ? run_capped(chunk) : run(chunk);
    });
  });
}

}  // namespace lorikeet::ops::cpu
