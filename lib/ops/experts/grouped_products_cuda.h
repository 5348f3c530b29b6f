#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// Products of experts' rows with their experts' matrices on a GPU, those of all experts in one launch,
// without libtorch. Rows of one expert follow each other. All pointers are device memory, 16-bit ones aligned
// to 16 bytes, as is every row; inner dimensions and widths are multiples of 8.
namespace lorikeet::ops {

/// Which rows are whose.
struct ExpertsOnDevice {
  std::int64_t rows;         ///< of all experts
  const std::int64_t* ends;  ///< of all experts: e has the rows from ends[e - 1] (0 for the first) on
  std::int64_t begin, end;   ///< the experts whose products are computed; the first right operand is begin's
  bool transposed;           ///< how right operands lie: [width, inner], or, transposed, [inner, width]
};

/// One product's operands: for each row of an expert left [inner] times its right operand.
struct GroupedOperands {
  const void* left = nullptr;     ///< [rows, inner]
  std::int64_t left_row = 0;      ///< elements from one row to the next
  const void* right = nullptr;    ///< the first expert's
  std::int64_t right_row = 0;     ///< elements from one of its rows to the next
  std::int64_t right_expert = 0;  ///< elements from one expert's to the next one's
  std::int64_t inner = 0;
  std::int64_t begin = 0, end = 0;  ///< the columns of the result that it has
};

/// out = left right^T + bias + scale * the sum of the terms, rounded once; sums are fp32.
struct GroupedProduct {
  static constexpr int kMostTerms = 2;

  GroupedOperands operands;  ///< of all columns
  GroupedOperands terms[kMostTerms] = {};
  int term_count = 0;
  float scale = 1;
  const void* bias = nullptr;    ///< the first expert's [width], or nullptr
  std::int64_t bias_expert = 0;  ///< elements from one to the next
  void* out = nullptr;           ///< [rows, width]
  std::int64_t out_row = 0;      ///< elements from one row to the next
};

/// Sums over each expert's rows: out of expert e [left_width, right_width], fp32, += scale left^T right.
struct GroupedSums {
  const void* left = nullptr;   ///< [rows, left_width]
  const void* right = nullptr;  ///< [rows, right_width]
  std::int64_t left_row = 0, left_width = 0, right_row = 0, right_width = 0;
  float* out = nullptr;         ///< the first expert's, dense
  std::int64_t out_expert = 0;  ///< elements from one to the next
  float scale = 1;
};

/// One launch each, by tensor cores (compute capability 8.0); nothing without rows. `element`: of 16 bits;
/// `stream`: a cudaStream_t. A result depends on its expert's rows and the shapes alone. They throw Error
/// when a launch fails, and always in a build without CUDA.
void launch_grouped_product(CudaElement element, const ExpertsOnDevice& experts,
                            const GroupedProduct& product, void* stream);
/// `experts.transposed` doesn't matter. Either width may be the small one.
void launch_grouped_sums(CudaElement element, const ExpertsOnDevice& experts, const GroupedSums& sums,
                         void* stream);

}  // namespace lorikeet::ops
