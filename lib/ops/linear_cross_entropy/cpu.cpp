// Three passes over a row while it is in cache: largest logit, sum of exponentials, gradient. The exponential
// is computed twice rather than kept, so that 16-bit rows lose nothing in between.
#include "ops/linear_cross_entropy/cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::kLanes;

// What turns a raw logit into the softmax's argument.
struct Bend {
  float scale, cap;
};

template <bool capped, typename T>
LORIKEET_INLINE float argument(T raw, const Bend& bend) {
  const float scaled = vector::load(raw) * bend.scale;
  return capped ? bend.cap * vector::tanh(scaled / bend.cap) : scaled;
}

template <bool capped, typename T>
LORIKEET_INLINE float largest(const T* row, std::int64_t n, const Bend& bend) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = argument<capped>(row[0], bend);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = argument<capped>(row[i + lane], bend);
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float result = lanes[0];
  for (const float lane : lanes) result = lane > result ? lane : result;
  for (; i < n; ++i) {
    const float value = argument<capped>(row[i], bend);
    result = value > result ? value : result;
  }
  return result;
}

template <bool capped, typename T>
LORIKEET_INLINE float sum_of_exponentials(const T* row, std::int64_t n, const Bend& bend, float max) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += vector::exp(argument<capped>(row[i + lane], bend) - max);
    }
  }
  float sum = 0;
  for (; i < n; ++i) sum += vector::exp(argument<capped>(row[i], bend) - max);
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <bool capped, typename T>
LORIKEET_INLINE void write_gradient(T* row, std::int64_t n, std::int64_t label, const Bend& bend, float max,
                                    float sum, float factor) {
  const float share = 1.0F / sum;
  // The label's element is the only one with a term of its own: done first, from the untouched logit.
  const float at_label = argument<capped>(row[label], bend);
  const float bent_label = capped ? at_label / bend.cap : 0.0F;
  const float label_gradient =
      (vector::exp(at_label - max) * share - 1.0F) * (1.0F - bent_label * bent_label) * factor;
  // A copy: the row's elements could be what the reference refers to, and nothing would be vectorised.
  const Bend own = bend;
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = argument<capped>(row[i], own);
    float gradient = vector::exp(value - max) * share * factor;
    if (capped) gradient *= 1.0F - value * value / (own.cap * own.cap);
    vector::store(gradient, row[i]);
  }
  vector::store(label_gradient, row[label]);
}

template <bool capped, typename T>
LORIKEET_INLINE void run_rows(T* logits, const std::int64_t* labels, float* nll, std::int64_t rows,
                              std::int64_t width, const Bend& bend, bool gradient, float factor) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * width;
    const float max = largest<capped>(row, width, bend);
    const float sum = sum_of_exponentials<capped>(row, width, bend, max);
    nll[r] = std::log(sum) + max - argument<capped>(row[labels[r]], bend);
    if (gradient) write_gradient<capped>(row, width, labels[r], bend, max, sum, factor);
  }
}

LORIKEET_VECTOR_CLONES void run(float* logits, const std::int64_t* labels, float* nll, std::int64_t rows,
                                std::int64_t width, const Bend& bend, bool gradient, float factor) {
  run_rows<false>(logits, labels, nll, rows, width, bend, gradient, factor);
}
LORIKEET_VECTOR_CLONES void run(Bf16* logits, const std::int64_t* labels, float* nll, std::int64_t rows,
                                std::int64_t width, const Bend& bend, bool gradient, float factor) {
  run_rows<false>(logits, labels, nll, rows, width, bend, gradient, factor);
}
LORIKEET_VECTOR_CLONES void run_capped(float* logits, const std::int64_t* labels, float* nll,
                                       std::int64_t rows, std::int64_t width, const Bend& bend, bool gradient,
                                       float factor) {
  run_rows<true>(logits, labels, nll, rows, width, bend, gradient, factor);
}
LORIKEET_VECTOR_CLONES void run_capped(Bf16* logits, const std::int64_t* labels, float* nll,
                                       std::int64_t rows, std::int64_t width, const Bend& bend, bool gradient,
                                       float factor) {
  run_rows<true>(logits, labels, nll, rows, width, bend, gradient, factor);
}

}  // namespace

void softmax_nll(at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                 bool gradient, double grad_scale, at::Tensor& nll) {
  const auto width = logits.size(1);
  const Bend bend{static_cast<float>(options.scale), static_cast<float>(options.soft_cap)};
  const auto factor = static_cast<float>(grad_scale * options.scale);
  vector::dispatch(logits, [&]<typename T>(T*) {
    const auto* label = labels.const_data_ptr<std::int64_t>();
    auto* out = nll.data_ptr<float>();
    at::parallel_for(0, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      T* rows = vector::data<T>(logits) + begin * width;
      if (options.soft_cap > 0) {
        run_capped(rows, label + begin, out + begin, end - begin, width, bend, gradient, factor);
      } else {
        run(rows, label + begin, out + begin, end - begin, width, bend, gradient, factor);
      }
    });
  });
}

}  // namespace lorikeet::ops::cpu
