#include "ops/quantized/decoded_output.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"

namespace lorikeet::ops {

void check_decoded(const char* op, at::ScalarType rounded, const at::Tensor& out) {
  check(rounded == at::kFloat || at::isReducedFloatingType(rounded), op, "fp32, bf16 or fp16",
        [&] { return std::string(c10::toString(rounded)); });
  check_tensor(out.is_contiguous() && (out.scalar_type() == rounded || out.scalar_type() == at::kFloat), op,
               "a dense output of the dtype that numbers are rounded to, or fp32", out);
}

void check_decoded_stack(const char* op, const at::Tensor& bytes, std::int64_t apart,
                         std::int64_t tensor_bytes, const at::Tensor& out) {
  check_decoded(op, out.scalar_type(), out.select(0, 0));
  check(apart % 4 == 0 && apart >= 0 && bytes.numel() >= (out.size(0) - 1) * apart + tensor_bytes, op,
        "tensors that begin at multiples of 4 bytes", [&] {
          return std::to_string(out.size(0)) + " of " + std::to_string(tensor_bytes) + " bytes, " +
                 std::to_string(apart) + " apart, in " + std::to_string(bytes.numel());
        });
}

cpu::Rounding rounding_to(at::ScalarType rounded) {
  if (rounded == at::kFloat) return cpu::Rounding::kNone;
  return rounded == at::kBFloat16 ? cpu::Rounding::kBF16 : cpu::Rounding::kF16;
}

void launch_decoder(const at::Tensor& out, at::ScalarType rounded,
                    const std::function<void(CudaElement element, void* numbers, void* stream)>& launch) {
  if (out.scalar_type() != rounded) {
    // Rows of 16-bit numbers as fp32: the norms of DoRA and merging, not the products.
    const at::Tensor narrow = at::empty(out.sizes(), out.options().dtype(rounded));
    launch_decoder(narrow, rounded, launch);
    out.copy_(narrow);
    return;
  }
  launch_on_device_of(out, [&](void* stream) { launch(cuda_element(out), out.mutable_data_ptr(), stream); });
}

}  // namespace lorikeet::ops
