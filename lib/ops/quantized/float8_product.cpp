#include "ops/quantized/float8_product.h"

#include <ATen/ATen.h>

#include <atomic>

#include "ops/capability.h"
#include "ops/cuda_launch.h"
#include "ops/dry_run.h"
#include "ops/quantized/float8.h"
#include "ops/quantized/float8_cuda.h"
#include "ops/quantized/float8_matrix.h"

namespace lorikeet::ops {
namespace {

std::atomic<bool> in_float8{false};

// Of at::_scaled_mm_out, in elements of a byte; its result begins at such a multiple of bytes, too.
constexpr std::int64_t kMultipleOf = 16;
// Keeps the inverse of a row of zeros finite.
constexpr float kLeastScale = 1e-12F;

bool has_scaled_product(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& out) {
  return kernels_of(x) == at::kCUDA && out.scalar_type() == at::kBFloat16 &&
         codes.size(0) % kMultipleOf == 0 && codes.size(1) % kMultipleOf == 0;
}

// Whether at::_scaled_mm_out writes rows that are part of wider ones. On Hopper it is cuBLAS's since CUDA
// 12.9 (the pinned libtorch has 13.0), which takes any distance of rows; of CUTLASS's kernel, for other
// cards, only dense rows are known to be right. float8_probe.cpp tries it before each run.
bool writes_in_place(const at::Tensor& out) {
  if (out.storage_offset() * out.element_size() % kMultipleOf != 0) return false;
  if (out.is_contiguous()) return true;
  return out.stride(1) == 1 && out.stride(0) * out.element_size() % kMultipleOf == 0 &&
         is_hopper(capability_of(out));
}

}  // namespace

void float8_product_out(at::Tensor out, const Float8Rows& x, const at::Tensor& codes,
                        const at::Tensor& scales) {
  const std::int64_t tokens = x.codes.size(0), count = codes.size(0);
  if (tokens == 0) return;  // of the last layer, in a pass without labels
  if (has_scaled_product(x.codes, codes, out)) {
    at::Tensor dense = writes_in_place(out) ? out : at::empty(out.sizes(), out.options());
    // On the default stream, as all of a pass without CUDA graphs, which are refused there: libtorch 2.11 is
    // reported to launch its kernel for Ada there, whatever the current one is (pytorch/pytorch#177651).
    if (!out.is_meta())
      at::_scaled_mm_out(dense, x.codes, codes.t(), x.scales, scales.view({1, count}), /*bias=*/{},
                         /*scale_result=*/{}, out.scalar_type(), /*use_fast_accum=*/false);
    if (!dense.is_same(out)) out.copy_(dense);
    return;
  }
  auto sums = at::empty({tokens, count}, out.options().dtype(at::kFloat));
  const RowSource rows{.rows = count,
                       .cols = codes.size(1),
                       .fill = [&](std::int64_t begin, std::int64_t end, const at::Tensor& panel) {
                         panel.copy_(codes.slice(0, begin, end));
                       }};
  matmul_nt_out(sums, x.codes.to(at::kFloat), rows);
  out.copy_(sums.mul_(x.scales).mul_(scales));
}

void set_float8_products(bool on) { in_float8.store(on); }

bool float8_products() { return in_float8.load(std::memory_order_relaxed); }

bool has_float8_products(const precision::Quantization& quantization) {
  const auto* how = std::get_if<precision::Float8>(&quantization);
  return how != nullptr && how->block_cols == 0 && how->block_rows <= 1;
}

Float8Rows to_float8_rows(const at::Tensor& x) {
  if (has_cuda_elements(x) && x.stride(1) == 1) {
    Float8Rows rows{at::empty(x.sizes(), x.options().dtype(at::kFloat8_e4m3fn)),
                    at::empty({x.size(0), 1}, x.options().dtype(at::kFloat))};
    launch_on_device_of(x, [&](void* stream) {
      launch_encode_float8(cuda_element(x), x.const_data_ptr(), x.size(0), x.size(1), x.stride(0),
                           kLeastScale, static_cast<std::uint8_t*>(rows.codes.mutable_data_ptr()),
                           rows.scales.mutable_data_ptr<float>(), stream);
    });
    return rows;
  }
  const at::Tensor numbers = x.to(at::kFloat);
  // Not by abs, which has no form without data.
  const at::Tensor largest =
      at::maximum(numbers.amax(1, /*keepdim=*/true), numbers.amin(1, /*keepdim=*/true).neg());
  const at::Tensor scales = largest.div_(kFloat8Largest).clamp_min_(kLeastScale);
  return {numbers.div(scales).clamp_(-kFloat8Largest, kFloat8Largest).to(at::kFloat8_e4m3fn), scales};
}

void float8_forward(at::Tensor& out, const at::Tensor& x, const FrozenMatrix& matrix,
                    const precision::Float8& quantization, const std::vector<LowRankTerm>& terms,
                    const at::Tensor& bias) {
  const Float8Rows input = to_float8_rows(x);
  for (const MatrixPart& part : *matrix.parts) {
    const Float8Layout layout(part.rows, matrix.cols, quantization);
    const at::Tensor bytes = matrix.bytes.narrow(0, part.offset_bytes, layout.bytes);
    const at::Tensor codes = float8_codes(bytes, layout);
    const at::Tensor scales = float8_scales(bytes, layout).flatten().expand({part.rows}).contiguous();
    for (const StoredRun& run : part.runs) {
      const std::int64_t from = run.stored_row, to = from + run.count;
      float8_product_out(out.slice(1, run.row, run.row + run.count), input, codes.slice(0, from, to),
                         scales.slice(0, from, to));
    }
  }
  matmul_add_terms(out, terms, bias);
}

}  // namespace lorikeet::ops
