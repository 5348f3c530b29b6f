#pragma once

#include <cstdint>

#include "ops/quantized/parts.h"
#include "precision/quantization.h"

namespace lorikeet::ops {

/// Where the parts of a quantised tensor lie in its bytes. Everything that decoding needs is in them, code
/// books included, so that a tensor read from a file decodes by its own books:
///
///   codes            4 bits an element, the first of two in the high bits, as many bytes as bitsandbytes has
///   scales           a block each: 8-bit codes where they are nested, else fp32
///   nested scales    fp32, a nested block each   | only where scales are nested
///   nested book      fp32 [256]                  |
///   offset           fp32 [1], the scales' mean  |
///   book             fp32 [16]
///
/// Each part starts at a multiple of 16 bytes, and the whole is one of 64.
struct QuantizedLayout {
  QuantizedLayout(std::int64_t elements, const precision::FourBits& quantization);

  std::int64_t elements;
  std::int64_t blocks;         ///< scales
  std::int64_t nested_blocks;  ///< 0 where scales are fp32
  std::int64_t codes_bytes;
  std::int64_t scales_begin, nested_scales_begin, nested_book_begin, offset_begin, book_begin, bytes;
};

/// `bytes`: the tensor's, in memory where each part is aligned.
QuantizedParts parts_of(const QuantizedLayout& layout, const precision::FourBits& quantization,
                        const std::uint8_t* bytes);

}  // namespace lorikeet::ops
