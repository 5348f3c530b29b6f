#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "precision/quantization.h"

namespace lorikeet::models {

/// What bitsandbytes' `quant_state` of a tensor says of it.
struct QuantizationState {
  precision::FourBits quantization;
  std::vector<std::int64_t> shape;  ///< [rows, cols], at least 1 each; their product fits 48 bits
  float offset = 0;                 ///< the scales' mean where they are nested; finite
};

/// Reads the JSON object that the tensor `name` ("....quant_state.bitsandbytes__nf4") holds. Throws Error
/// that names the tensor for anything else, and for values that can't be.
QuantizationState parse_quantization_state(std::string_view bytes, const std::string& name);

/// Throws Error "[checkpoint] quantised tensor 'NAME': expected ..., got ...".
[[noreturn]] void fail_quantized(const std::string& name, const std::string& expected,
                                 const std::string& got);

}  // namespace lorikeet::models
