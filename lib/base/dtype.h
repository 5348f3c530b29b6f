#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lorikeet {

/// Element types that files and policies name. The libtorch twin is made by `ops::to_torch`.
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

/// Bytes of one element.
std::size_t dtype_size(DType dtype);

/// The largest finite value of a floating dtype; infinity for others.
double dtype_largest(DType dtype);

/// True for the dtypes that hold weights: fp64, fp32, fp16, bf16.
bool is_floating(DType dtype);

/// The short name used in configs, tables and fingerprints: "bf16", "fp32", "int64", ...
std::string_view dtype_name(DType dtype);

/// The name in a safetensors header: "BF16", "F32", "I64", ...
std::string_view dtype_safetensors_name(DType dtype);

/// Inverse of dtype_safetensors_name; nullopt for an unknown name.
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace lorikeet
