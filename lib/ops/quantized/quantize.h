#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "precision/quantization.h"

namespace lorikeet::ops {

/// Quantises a matrix whose numbers come piece by piece, in order, on the CPU. The result doesn't depend on
/// the pieces or the number of threads.
class Quantizer {
 public:
  virtual ~Quantizer() = default;

  /// Of the whole matrix: codes, then what lies behind them.
  virtual std::int64_t bytes() const = 0;
  /// Pieces are multiples of so many numbers, unless they are the last.
  virtual std::int64_t unit() const = 0;
  /// Where the code of a number lies that begins a piece.
  virtual std::int64_t code_begin(std::int64_t number) const = 0;
  /// Where what `finish` returns lies.
  virtual std::int64_t rest_begin() const = 0;

  /// The codes (uint8) of the next numbers: fp32, dense, flat.
  virtual at::Tensor add(const at::Tensor& values) = 0;
  /// Whether a number that came was infinite or NaN.
  virtual bool has_non_finite() const = 0;
  /// What lies behind the codes, once all numbers came: uint8 [bytes - rest_begin].
  virtual at::Tensor finish() const = 0;
};

/// nf4: codes, scales and books equal those of bitsandbytes 0.50.2 to the bit. fp8: the scale of a row is its
/// largest absolute value over 448, codes are rounded to nearest. Beside the pieces they hold a fp32 scale a
/// block or row. Throws Error for fp4, an odd block, and fp8 with other blocks than rows.
std::unique_ptr<Quantizer> make_quantizer(std::int64_t rows, std::int64_t cols,
                                          const precision::Quantization& quantization);

}  // namespace lorikeet::ops
