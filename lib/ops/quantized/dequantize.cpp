#include "ops/quantized/dequantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include "ops/check.h"
#include "ops/quantized/dequantize_cpu.h"
#include "ops/quantized/dequantize_cuda.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "dequantize";
constexpr std::int64_t kGrain = 16384;

void on_cpu(const QuantizedParts& parts, std::int64_t first, at::ScalarType rounded, const at::Tensor& out) {
  const auto rounding = rounded == at::kFloat      ? cpu::Rounding::kNone
                        : rounded == at::kBFloat16 ? cpu::Rounding::kBF16
                                                   : cpu::Rounding::kF16;
  at::parallel_for(0, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (out.scalar_type() == at::kFloat) {
      cpu::dequantize(parts, first + begin, end - begin, rounding, out.mutable_data_ptr<float>() + begin);
    } else {
      cpu::dequantize(parts, first + begin, end - begin, rounding,
                      static_cast<std::uint16_t*>(out.mutable_data_ptr()) + begin);
    }
  });
}

void on_cuda(const QuantizedParts& parts, std::int64_t first, const at::Tensor& out) {
  const auto element = out.scalar_type() == at::kFloat      ? DecodedElement::kF32
                       : out.scalar_type() == at::kBFloat16 ? DecodedElement::kBF16
                                                            : DecodedElement::kF16;
  const c10::OptionalDeviceGuard guard(out.device());
  const auto stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(out.device());
  launch_dequantize(parts, first, out.numel(), element, out.mutable_data_ptr(), stream.native_handle());
}

}  // namespace

void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout,
                const precision::Quantization& quantization, std::int64_t first, at::ScalarType rounded,
                const at::Tensor& out) {
  check(rounded == at::kFloat || at::isReducedFloatingType(rounded), kOp, "fp32, bf16 or fp16",
        [&] { return std::string(c10::toString(rounded)); });
  check_tensor(out.is_contiguous() && (out.scalar_type() == rounded || out.scalar_type() == at::kFloat), kOp,
               "a dense output of the dtype that numbers are rounded to, or fp32", out);
  check(first >= 0 && first + out.numel() <= layout.elements && bytes.numel() >= layout.bytes, kOp,
        "numbers of the tensor", [&] {
          return "[" + std::to_string(first) + ", " + std::to_string(first + out.numel()) + ") of " +
                 std::to_string(layout.elements) + " in " + std::to_string(bytes.numel()) + " bytes";
        });
  if (out.is_meta()) return;
  const auto parts = parts_of(layout, quantization, bytes.const_data_ptr<std::uint8_t>());
  if (!out.is_cuda()) {
    on_cpu(parts, first, rounded, out);
    return;
  }
  if (out.scalar_type() == rounded) {
    on_cuda(parts, first, out);
    return;
  }
  // Rows of 16-bit numbers as fp32: the norms of DoRA and merging, not the products.
  const at::Tensor narrow = at::empty(out.sizes(), out.options().dtype(rounded));
  on_cuda(parts, first, narrow);
  out.copy_(narrow);
}

}  // namespace lorikeet::ops
