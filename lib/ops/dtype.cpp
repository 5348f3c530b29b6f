#include "ops/dtype.h"

#include <string>

#include "base/error.h"

namespace lorikeet::ops {

at::ScalarType to_torch(DType dtype) {
  switch (dtype) {
    case DType::kF64: return at::kDouble;
    case DType::kF32: return at::kFloat;
    case DType::kF16: return at::kHalf;
    case DType::kBF16: return at::kBFloat16;
    case DType::kI64: return at::kLong;
    case DType::kI32: return at::kInt;
    case DType::kI16: return at::kShort;
    case DType::kI8: return at::kChar;
    case DType::kU8: return at::kByte;
    case DType::kBool: return at::kBool;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    case DType::kF8E5M2: return at::kFloat8_e5m2;
  }
  throw Error("[dtype] expected a known element type, got number " + std::to_string(static_cast<int>(dtype)));
}

DType from_torch(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::kF64;
    case at::kFloat: return DType::kF32;
    case at::kHalf: return DType::kF16;
    case at::kBFloat16: return DType::kBF16;
    case at::kLong: return DType::kI64;
    case at::kInt: return DType::kI32;
    case at::kShort: return DType::kI16;
    case at::kChar: return DType::kI8;
    case at::kByte: return DType::kU8;
    case at::kBool: return DType::kBool;
    case at::kFloat8_e4m3fn: return DType::kF8E4M3;
    case at::kFloat8_e5m2: return DType::kF8E5M2;
    default: break;
  }
  throw Error(std::string("[dtype] expected a float, integer, bool or fp8 type, got ") + c10::toString(type));
}

}  // namespace lorikeet::ops
