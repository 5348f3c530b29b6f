#include "ops/experts/cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

using vector::Bf16;
using vector::kLanes;
using vector::load;
using vector::store;

constexpr std::int64_t kGrainRows = 8;

// Tokens of one thread.
template <typename T>
struct Combined {
  const T* rows;               // of all tokens
  const std::int64_t* places;  // [tokens, k]
  const float* weights;        // [tokens, k], or nullptr: all are 1
  T* out;                      // [tokens, width]
  std::int64_t tokens, per_token, width;
};

// Sums are kept for a stretch of columns: a whole row of them would leave the registers.
template <typename T>
LORIKEET_INLINE void combine_stretches(const Combined<T>& c) {
  constexpr std::int64_t kStretch = 4 * kLanes;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::int64_t* places = c.places + t * c.per_token;
    T* out = c.out + t * c.width;
    for (std::int64_t begin = 0; begin < c.width; begin += kStretch) {
      const std::int64_t count = std::min(kStretch, c.width - begin);
      std::array<float, kStretch> sum{};
      for (std::int64_t j = 0; j < c.per_token; ++j) {
        const T* row = c.rows + places[j] * c.width + begin;
        const float weight = c.weights != nullptr ? c.weights[t * c.per_token + j] : 1.0F;
        if (count == kStretch) {
          for (std::int64_t i = 0; i < kStretch; ++i)
            sum[static_cast<std::size_t>(i)] += weight * load(row[i]);
        } else {
          for (std::int64_t i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] += weight * load(row[i]);
        }
      }
      for (std::int64_t i = 0; i < count; ++i) store(sum[static_cast<std::size_t>(i)], out[begin + i]);
    }
  }
}

// Tokens of one thread.
template <typename T>
struct Spread {
  const T* x;                  // [tokens, width]
  const std::int64_t* places;  // [tokens, k]
  const float* weights;        // [tokens, k], or nullptr: all are 1
  T* rows;                     // of all tokens
  std::int64_t tokens, per_token, width;
};

template <typename T>
LORIKEET_INLINE void spread_tokens(const Spread<T>& s) {
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const T* x = s.x + t * s.width;
    for (std::int64_t j = 0; j < s.per_token; ++j) {
      T* row = s.rows + s.places[t * s.per_token + j] * s.width;
      if (s.weights == nullptr) {
        std::copy_n(x, s.width, row);
        continue;
      }
      const float weight = s.weights[t * s.per_token + j];
#pragma GCC ivdep
      for (std::int64_t i = 0; i < s.width; ++i) store(weight * load(x[i]), row[i]);
    }
  }
}

template <typename T>
struct Pairs {
  const T *a, *b;
  float* out;
  std::int64_t rows, width;
};

template <typename T>
LORIKEET_INLINE void multiply_pairs(const Pairs<T>& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const T* a = p.a + row * p.width;
    const T* b = p.b + row * p.width;
    std::array<float, kLanes> sums{};
    const std::int64_t whole = p.width / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        sums[static_cast<std::size_t>(lane)] += load(a[i + lane]) * load(b[i + lane]);
    }
    float sum = 0;
    for (std::int64_t i = whole; i < p.width; ++i) sum += load(a[i]) * load(b[i]);
    for (const float lane : sums) sum += lane;
    p.out[row] = sum;
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type, pass a function's name
#define LORIKEET_EXPERTS_KERNEL(name, Struct, body, T) \
  LORIKEET_VECTOR_CLONES void name(const Struct<T>& part) { body(part); }
// NOLINTEND(bugprone-macro-parentheses)
LORIKEET_EXPERTS_KERNEL(combine_part, Combined, combine_stretches, float)
LORIKEET_EXPERTS_KERNEL(combine_part, Combined, combine_stretches, Bf16)
LORIKEET_EXPERTS_KERNEL(spread_part, Spread, spread_tokens, float)
LORIKEET_EXPERTS_KERNEL(spread_part, Spread, spread_tokens, Bf16)
LORIKEET_EXPERTS_KERNEL(multiply_part, Pairs, multiply_pairs, float)
LORIKEET_EXPERTS_KERNEL(multiply_part, Pairs, multiply_pairs, Bf16)
#undef LORIKEET_EXPERTS_KERNEL

// The weights of tokens from `begin` on; nullptr where rows have none.
const float* weights_from(const Routing& routing, RowWeights weights, std::int64_t begin) {
  if (weights == RowWeights::kNone) return nullptr;
  return routing.weights.const_data_ptr<float>() + begin * routing.weights.size(1);
}

}  // namespace

void spread_rows(const at::Tensor& x, const Routing& routing, RowWeights weights, at::Tensor& rows) {
  const std::int64_t k = routing.places.size(1), width = x.size(1);
  vector::dispatch(x, [&]<typename T>(T*) {
    const auto* places = routing.places.const_data_ptr<std::int64_t>();
    at::parallel_for(0, x.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      spread_part(Spread<T>{.x = vector::data<T>(x) + begin * width,
                            .places = places + begin * k,
                            .weights = weights_from(routing, weights, begin),
                            .rows = vector::data<T>(rows),
                            .tokens = end - begin,
                            .per_token = k,
                            .width = width});
    });
  });
}

void combine_rows(const at::Tensor& rows, const Routing& routing, RowWeights weights, at::Tensor& out) {
  const std::int64_t k = routing.places.size(1), width = rows.size(1);
  vector::dispatch(rows, [&]<typename T>(T*) {
    const auto* places = routing.places.const_data_ptr<std::int64_t>();
    at::parallel_for(0, out.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      combine_part(Combined<T>{.rows = vector::data<T>(rows),
                               .places = places + begin * k,
                               .weights = weights_from(routing, weights, begin),
                               .out = vector::data<T>(out) + begin * width,
                               .tokens = end - begin,
                               .per_token = k,
                               .width = width});
    });
  });
}

void row_products(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const std::int64_t width = a.size(1);
  vector::dispatch(a, [&]<typename T>(T*) {
    at::parallel_for(0, a.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
      multiply_part(Pairs<T>{.a = vector::data<T>(a) + begin * width,
                             .b = vector::data<T>(b) + begin * width,
                             .out = out.mutable_data_ptr<float>() + begin,
                             .rows = end - begin,
                             .width = width});
    });
  });
}

}  // namespace lorikeet::ops::cpu
