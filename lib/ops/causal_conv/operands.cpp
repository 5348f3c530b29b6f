#include "ops/causal_conv/operands.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/row_layout.h"

namespace lorikeet::ops {
namespace {

// Whether the kernels take frozen parameters where they lie.
bool kernels_take(const at::Tensor& parameters, const at::Tensor& rows) {
  return parameters.is_contiguous() && is_aligned(parameters) &&
         (parameters.scalar_type() == at::kFloat || parameters.scalar_type() == rows.scalar_type());
}

}  // namespace

void check_ends(const char* op, const at::Tensor& rows, const Sequences& sequences) {
  check(!sequences.cu_seqlens.empty() && sequences.cu_seqlens.back() == rows.size(0), op,
        "sequences that end with the rows", [&] { return describe(rows); });
}

void check_before(const char* op, const at::Tensor& before, const at::Tensor& rows, const at::Tensor& weight,
                  const Sequences& sequences) {
  check(!before.defined() || (before.dim() == 3 && before.size(0) + 1 == std::ssize(sequences.cu_seqlens) &&
                              before.size(1) + 1 == weight.size(1) && before.size(2) == weight.size(0) &&
                              before.scalar_type() == rows.scalar_type()),
        op, "rows before each sequence, [sequences, taps - 1, channels], of the input's type",
        [&] { return describe(before); });
}

bool convolves_on_cuda(const at::Tensor& rows, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& bias) {
  const at::Tensor& bounds = sequences.cu_seqlens_device;
  return has_cuda_elements(rows) &&
         causal_conv_kernel_fits(cuda_element(rows), weight.size(0), weight.size(1)) &&
         rows_are_aligned(rows) && kernels_take(weight, rows) &&
         (!bias.defined() || kernels_take(bias, rows)) && bounds.defined() &&
         bounds.scalar_type() == at::kInt && bounds.device() == rows.device() && bounds.is_contiguous() &&
         bounds.numel() == std::ssize(sequences.cu_seqlens);
}

CausalConvOnDevice convolution_on_device(const at::Tensor& rows, const at::Tensor& weight,
                                         const Sequences& sequences, const at::Tensor& bias) {
  return {.rows = rows.size(0),
          .channels = weight.size(0),
          .sequences = std::ssize(sequences.cu_seqlens) - 1,
          .taps = weight.size(1),
          .bounds = sequences.cu_seqlens_device.const_data_ptr<std::int32_t>(),
          .x = rows.const_data_ptr(),
          .x_row = rows.stride(0),
          .weight = weight.const_data_ptr(),
          .is_fp32 = weight.scalar_type() == at::kFloat,
          .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
          .bias_is_fp32 = bias.defined() && bias.scalar_type() == at::kFloat};
}

at::Tensor taps_by_channels(const at::Tensor& weight) { return weight.t().to(at::kFloat).contiguous(); }

}  // namespace lorikeet::ops
