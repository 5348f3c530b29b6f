#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "ops/matmul/matmul.h"

namespace lorikeet::probe {

// How fast this process multiplies 16-bit matrices on its CPU, natively and widened to fp32.

/// `count` frozen matrices [out, in] of a model. `projections` adapters' B lie side by side in the rows of
/// each; 0: it has no adapter.
struct FrozenProduct {
  std::int64_t out = 0, in = 0;
  std::int64_t count = 1;
  std::int64_t projections = 0;
};

/// What a pass multiplies.
struct ProductJob {
  at::ScalarType dtype = at::kBFloat16;
  std::int64_t tokens = 0;  ///< rows of the other operand
  std::int64_t rank = 0;    ///< of the adapters
  bool backward = true;     ///< gradients of the input and the adapters, too
  std::vector<FrozenProduct> products;

  /// Elements of all frozen matrices.
  std::int64_t parameters() const;
};

/// In floating-point operations of the frozen matrices a second; the adapters' time counts, not their work.
struct ProductRates {
  double native = 0, widened = 0;
  /// How many times as fast native products are, as the two were timed one right after the other.
  double native_over_widened = 1;

  bool operator==(const ProductRates&) const = default;
};

/// Measures both ways, with the threads of this process, on the job's matrices (cut down to a part of each
/// that costs about 0.5 GFLOP, and to kMostMeasuredTokens). The ways alternate, product by product; of three
/// to seven rounds the rates are made of each product's best times and the ratio of each product's median
/// ratio, so that another process that takes a core for a while doesn't decide. Takes some 0.2 to 1 s at 200
/// GFLOP/s. No other thread may multiply meanwhile.
ProductRates measure_products(const ProductJob& job);
inline constexpr std::int64_t kMostMeasuredTokens = 512;

/// The faster way: kNative or kWidened. Within 2%, which is less than rates vary, it is `usual`.
ops::HalfProducts faster_products(const ProductRates& rates, ops::HalfProducts usual);

}  // namespace lorikeet::probe
