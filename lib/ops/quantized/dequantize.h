#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/quantized/layout.h"

namespace lorikeet::ops {

/// The numbers [first, first + out.numel()) of a quantised tensor: value of the code times the block's scale
/// in fp32, rounded to `rounded` (fp32, bf16 or fp16), in the dense `out`, which is of that dtype or fp32.
/// `bytes` (uint8, flat) begins with the tensor's; both are on one device, CPU or GPU. Nothing is computed
/// for meta tensors.
void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout,
                const precision::FourBits& quantization, std::int64_t first, at::ScalarType rounded,
                const at::Tensor& out);

/// The same of out.size(0) tensors whose bytes begin `apart` (a multiple of 4) after each other, each into a
/// dense row of `out` [tensors, numbers], rounded to its dtype (fp32, bf16 or fp16). On a GPU it is one
/// launch.
void dequantize_stack(const at::Tensor& bytes, std::int64_t apart, const QuantizedLayout& layout,
                      const precision::FourBits& quantization, std::int64_t first, const at::Tensor& out);

namespace reference {

/// The same numbers to the bit by plain ATen calls, on any device; makes its scratch for meta tensors too.
void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout,
                const precision::FourBits& quantization, std::int64_t first, at::ScalarType rounded,
                const at::Tensor& out);

}  // namespace reference
}  // namespace lorikeet::ops
