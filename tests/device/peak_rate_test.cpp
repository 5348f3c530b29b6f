#include "device/peak_rate.h"

#include "support/catch.h"

using namespace lorikeet;
using device::peak_flops;

TEST_CASE("a card's rate is found by its name, the longer name first") {
  CHECK(peak_flops("NVIDIA H100 80GB HBM3", DType::kBF16) == 989.4e12);
  CHECK(peak_flops("NVIDIA H100 PCIe", DType::kBF16) == 756e12);
  CHECK(peak_flops("NVIDIA A10G", DType::kF16) == 70e12);
  CHECK(peak_flops("NVIDIA A10", DType::kBF16) == 125e12);
  CHECK(peak_flops("NVIDIA L40S", DType::kBF16) == 362e12);
  CHECK(peak_flops("NVIDIA GeForce RTX 3090", DType::kBF16) == 71.2e12);
}

TEST_CASE("TF32 is half as fast as 16-bit products, and exact fp32 has no rate here") {
  CHECK(peak_flops("NVIDIA A100-SXM4-80GB", DType::kF32, config::Matmul::kTf32) == 155.95e12);
  CHECK_FALSE(peak_flops("NVIDIA A100-SXM4-80GB", DType::kF32, config::Matmul::kFp32));
}

TEST_CASE("an unknown card or dtype has no rate") {
  CHECK_FALSE(peak_flops("Some Card 9000", DType::kBF16));
  CHECK_FALSE(peak_flops("NVIDIA H100 80GB HBM3", DType::kF32));
}
