#include "base/dtype.h"

#include <cmath>

#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("the largest values are those of the formats") {
  CHECK(dtype_largest(DType::kF16) == (2 - std::ldexp(1, -10)) * std::ldexp(1, 15));
  CHECK(dtype_largest(DType::kBF16) == (2 - std::ldexp(1, -7)) * std::ldexp(1, 127));
  CHECK(dtype_largest(DType::kF32) == (2 - std::ldexp(1, -23)) * std::ldexp(1, 127));
  CHECK(std::isinf(dtype_largest(DType::kI8)));
}

TEST_CASE("names in safetensors headers lead back to their dtype") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kBool}) {
    CHECK(dtype_from_safetensors(dtype_safetensors_name(dtype)) == dtype);
  }
  CHECK_FALSE(dtype_from_safetensors("F12"));
}
