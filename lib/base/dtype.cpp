#include "base/dtype.h"

#include <array>
#include <limits>

namespace lorikeet {
namespace {

struct Entry {
  DType dtype;
  std::size_t size;
  std::string_view name;
  std::string_view safetensors;
};

// Indexed by the enum's value.
constexpr std::array<Entry, 12> kEntries{{
    {DType::kF64, 8, "fp64", "F64"},
    {DType::kF32, 4, "fp32", "F32"},
    {DType::kF16, 2, "fp16", "F16"},
    {DType::kBF16, 2, "bf16", "BF16"},
    {DType::kI64, 8, "int64", "I64"},
    {DType::kI32, 4, "int32", "I32"},
    {DType::kI16, 2, "int16", "I16"},
    {DType::kI8, 1, "int8", "I8"},
    {DType::kU8, 1, "uint8", "U8"},
    {DType::kBool, 1, "bool", "BOOL"},
    {DType::kF8E4M3, 1, "fp8_e4m3", "F8_E4M3"},
    {DType::kF8E5M2, 1, "fp8_e5m2", "F8_E5M2"},
}};

const Entry& entry(DType dtype) { return kEntries.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::size_t dtype_size(DType dtype) { return entry(dtype).size; }
bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
double dtype_largest(DType dtype) {
  switch (dtype) {
    case DType::kF64: return std::numeric_limits<double>::max();
    case DType::kF32: return std::numeric_limits<float>::max();
    case DType::kF16: return 65504;
    case DType::kBF16: return 0x1.FEp127;
    default: return std::numeric_limits<double>::infinity();
  }
}
std::string_view dtype_name(DType dtype) { return entry(dtype).name; }
std::string_view dtype_safetensors_name(DType dtype) { return entry(dtype).safetensors; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (e.safetensors == name) return e.dtype;
  }
  return std::nullopt;
}

}  // namespace lorikeet
