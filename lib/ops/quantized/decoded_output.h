#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "ops/cuda_element.h"
#include "ops/quantized/expand_blocks.h"

namespace lorikeet::ops {

/// Throws Error from `op` unless `rounded` is fp32, bf16 or fp16 and `out` is dense and of it or fp32.
void check_decoded(const char* op, at::ScalarType rounded, const at::Tensor& out);

/// Throws Error from `op` unless out [tensors, ...] is fp32, bf16 or fp16 with dense numbers of each tensor,
/// and `bytes` has as many tensors of `tensor_bytes`, `apart` (a multiple of 4) after each other.
void check_decoded_stack(const char* op, const at::Tensor& bytes, std::int64_t apart,
                         std::int64_t tensor_bytes, const at::Tensor& out);

/// How the CPU rounds to it.
cpu::Rounding rounding_to(at::ScalarType rounded);

/// Calls `launch` with a buffer as large as `out`, on whose device and stream it is, and of the dtype
/// `rounded`: out's own memory, or one that is copied there where out is fp32 and numbers are rounded to
/// less.
void launch_decoder(const at::Tensor& out, at::ScalarType rounded,
                    const std::function<void(CudaElement element, void* numbers, void* stream)>& launch);

}  // namespace lorikeet::ops
