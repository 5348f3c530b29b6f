#pragma once

#include <cstdint>

namespace lorikeet::ops {

/// The parts of a quantised tensor, in whichever memory they lie; see QuantizedLayout.
struct QuantizedParts {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scale_codes = nullptr;  ///< null where scales are fp32
  const float* scales = nullptr;              ///< fp32 scales, or the nested ones
  const float* nested_book = nullptr;
  const float* offset = nullptr;
  const float* book = nullptr;
  std::int64_t block = 0, nested_block = 0;
};

/// Quantised tensors of one layout at equal distances in memory, which one launch decodes.
struct QuantizedStack {
  std::int64_t count = 1;        ///< at most 65,535
  std::int64_t bytes_apart = 0;  ///< from a part of one tensor to that of the next
  std::int64_t out_apart = 0;    ///< elements, from the first number of one tensor to that of the next
};

}  // namespace lorikeet::ops
