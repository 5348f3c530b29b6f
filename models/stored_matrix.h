#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "precision/quantization.h"

namespace lorikeet::models {

/// A quantised tensor of a checkpoint, checked, as the bytes of ops::QuantizedFormat: what is copied as it is
/// in the files, and what was made of numbers there.
struct StoredMatrix {
  struct Copied {
    const io::TensorView* view;
    std::int64_t begin;           ///< in the stored bytes
    bool low_bits_first = false;  ///< of two codes in a byte; here the first one is in the high bits
  };
  struct Made {
    at::Tensor bytes;  ///< uint8
    std::int64_t begin;
  };
  std::vector<Copied> copied;  ///< the codes first
  std::vector<Made> made;
};

/// A dtype and number of elements that a tensor beside the codes must have. Throws Error that names it where
/// it is missing or differs.
const io::TensorView& companion(const io::Checkpoint& checkpoint, const std::string& name, DType dtype,
                                std::int64_t elements);

/// The finite numbers of a tensor, fp32. Throws Error that names it where one isn't.
at::Tensor finite_numbers(const io::TensorView& view);

// bitsandbytes' 4 bits: `NAME` (the codes) has companions NAME.absmax (the scales), NAME.quant_map (the code
// book), NAME.nested_absmax and NAME.nested_quant_map where scales are quantised, and
// NAME.quant_state.bitsandbytes__nf4 or __fp4, a JSON object as uint8. Format: bitsandbytes' QuantState.

/// The tensor with that state; nullptr where bitsandbytes didn't quantise `name`.
const io::TensorView* four_bit_state(const io::Checkpoint& checkpoint, const std::string& name);

/// The companions of a tensor in 4 bits that are there.
std::vector<const io::TensorView*> four_bit_companions(const io::Checkpoint& checkpoint,
                                                       const io::TensorView& view);

/// The tensor's shape, by its state.
std::vector<std::int64_t> four_bit_shape(const io::Checkpoint& checkpoint, const io::TensorView& view);

/// Throws Error, which names the tensor, unless it and its companions are a matrix of that shape quantised
/// so, with books and scales that are possible.
StoredMatrix read_four_bits(const io::Checkpoint& checkpoint, const io::TensorView& view,
                            const std::vector<std::int64_t>& shape, const precision::FourBits& quantization);

// mxfp4: `M.weight` (two codes a byte, the first in the low bits) has M.weight_scales, a power of two for
// each 32 numbers of a row as its exponent + 127 (E8M0). Both are parts of tensors of all experts
// (expert_stacks.h). Such scales are the codes of a book of powers of two, so that nested scales hold them as
// they are. Format: OCP Microscaling Formats (MX) Specification 1.0.

/// The scales of a tensor in mxfp4; nullptr where `name` isn't one.
const io::TensorView* mxfp4_scales(const io::Checkpoint& checkpoint, const std::string& name);

/// Throws Error, which names the tensor, unless it and its scales are a matrix of that shape quantised so.
StoredMatrix read_mxfp4(const io::Checkpoint& checkpoint, const io::TensorView& view,
                        const std::vector<std::int64_t>& shape, const precision::FourBits& quantization);

// fp8 (e4m3): `M.weight` has M.weight_scale_inv (transformers' finegrained fp8, DeepSeek's) or M.weight_scale
// (compressed-tensors), a number for each block by which codes are multiplied: [rows of blocks, columns of
// blocks], of a scale a row [rows, 1] or [rows], of one scale any shape of one element. M.input_scale or
// M.activation_scale, how activations were quantised, isn't used: they aren't here.

/// The companions of a fp8 tensor that are there.
std::vector<const io::TensorView*> float8_companions(const io::Checkpoint& checkpoint,
                                                     const io::TensorView& view);

/// Throws Error, which names the tensor, unless it and its scales are a matrix of that shape quantised so.
StoredMatrix read_float8(const io::Checkpoint& checkpoint, const io::TensorView& view,
                         const std::vector<std::int64_t>& shape, const precision::Float8& quantization);

/// Throws Error, which names the tensor, where one of these codes of it is NaN.
void require_float8_numbers(const io::TensorView& codes);

}  // namespace lorikeet::models
