#include "ops/quantized/dequantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/quantized/decoded_output.h"
#include "ops/quantized/dequantize_cpu.h"
#include "ops/quantized/dequantize_cuda.h"
#include "ops/reference_ops.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "dequantize";
constexpr std::int64_t kGrain = 16384;

void on_cpu(const QuantizedParts& parts, std::int64_t first, cpu::Rounding rounding, const at::Tensor& out) {
  at::parallel_for(0, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (out.scalar_type() == at::kFloat) {
      cpu::dequantize(parts, first + begin, end - begin, rounding, out.mutable_data_ptr<float>() + begin);
    } else {
      cpu::dequantize(parts, first + begin, end - begin, rounding,
                      static_cast<std::uint16_t*>(out.mutable_data_ptr()) + begin);
    }
  });
}

void check_range(const at::Tensor& bytes, const QuantizedLayout& layout, std::int64_t first,
                 std::int64_t count) {
  check(first >= 0 && first + count <= layout.elements && bytes.numel() >= layout.bytes, kOp,
        "numbers of the tensor", [&] {
          return "[" + std::to_string(first) + ", " + std::to_string(first + count) + ") of " +
                 std::to_string(layout.elements) + " in " + std::to_string(bytes.numel()) + " bytes";
        });
}

}  // namespace

void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout,
                const precision::FourBits& quantization, std::int64_t first, at::ScalarType rounded,
                const at::Tensor& out) {
  check_decoded(kOp, rounded, out);
  check_range(bytes, layout, first, out.numel());
  if (reference_ops()) return reference::dequantize(bytes, layout, quantization, first, rounded, out);
  if (out.is_meta()) return;
  const auto parts = parts_of(layout, quantization, bytes.const_data_ptr<std::uint8_t>());
  if (!out.is_cuda()) {
    on_cpu(parts, first, rounding_to(rounded), out);
    return;
  }
  launch_decoder(out, rounded, [&](CudaElement element, void* numbers, void* stream) {
    launch_dequantize(parts, {}, first, out.numel(), element, numbers, stream);
  });
}

void dequantize_stack(const at::Tensor& bytes, std::int64_t apart, const QuantizedLayout& layout,
                      const precision::FourBits& quantization, std::int64_t first, const at::Tensor& out) {
  if (!out.is_cuda() || reference_ops()) {
    for (std::int64_t i = 0; i < out.size(0); ++i)
      dequantize(bytes.slice(0, i * apart), layout, quantization, first, out.scalar_type(), out.select(0, i));
    return;
  }
  check_decoded_stack(kOp, bytes, apart, layout.bytes, out);
  check_range(bytes, layout, first, out.size(1));
  const auto parts = parts_of(layout, quantization, bytes.const_data_ptr<std::uint8_t>());
  const QuantizedStack stack{.count = out.size(0), .bytes_apart = apart, .out_apart = out.stride(0)};
  launch_on_device_of(out, [&](void* stream) {
    launch_dequantize(parts, stack, first, out.size(1), cuda_element(out), out.mutable_data_ptr(), stream);
  });
}

}  // namespace lorikeet::ops
