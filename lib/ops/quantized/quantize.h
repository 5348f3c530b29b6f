#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/quantized/layout.h"

namespace lorikeet::ops {

/// Quantises a tensor whose numbers come piece by piece, in order, into the bytes of a QuantizedLayout, on
/// the CPU. Codes, scales and books equal those of bitsandbytes 0.50.2 to the bit, whatever the pieces and
/// the number of threads are. Beside the pieces it holds a fp32 scale a block.
class Quantizer {
 public:
  /// Throws Error unless the book is NF4 and the block even.
  Quantizer(std::int64_t elements, const precision::Quantization& quantization);

  const QuantizedLayout& layout() const { return layout_; }

  /// The codes (uint8) of the next numbers: fp32, dense, flat, a multiple of the block unless they are the
  /// last.
  at::Tensor add(const at::Tensor& values);
  /// Whether a number that came was infinite or NaN.
  bool has_non_finite() const { return non_finite_; }

  /// What lies behind the codes, once all numbers came: uint8 [bytes - scales_begin].
  at::Tensor finish() const;

 private:
  precision::Quantization quantization_;
  QuantizedLayout layout_;
  at::Tensor scales_;  // fp32 [blocks]
  std::int64_t done_ = 0;
  bool non_finite_ = false;
};

}  // namespace lorikeet::ops
