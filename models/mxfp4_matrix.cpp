#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "models/expert_stacks.h"
#include "models/quantization_state.h"
#include "models/stored_matrix.h"
#include "ops/quantized/code_books.h"
#include "ops/quantized/layout.h"

namespace lorikeet::models {
namespace {

constexpr int kExponentBias = 127;
constexpr std::uint8_t kNanScale = 255;

// What the 8 bits of a scale stand for. The smallest is below fp32's normal numbers, and may be taken as 0.
ops::LargeBook powers_of_two() {
  ops::LargeBook powers{};
  for (std::size_t code = 0; code < powers.size(); ++code)
    powers[code] = std::ldexp(1.0F, static_cast<int>(code) - kExponentBias);
  return powers;
}

at::Tensor bytes_of(at::ArrayRef<float> numbers) { return at::tensor(numbers).view(at::kByte); }

void require_bytes(const io::TensorView& view, const std::vector<std::int64_t>& shape) {
  if (view.dtype == DType::kU8 && view.shape == shape) return;
  fail_quantized(view.name, io::shape_text(shape) + " of " + std::string(dtype_name(DType::kU8)),
                 io::shape_text(view.shape) + " of " + std::string(dtype_name(view.dtype)));
}

}  // namespace

const io::TensorView* mxfp4_scales(const io::Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.find(name + "_scales");
}

StoredMatrix read_mxfp4(const io::Checkpoint& checkpoint, const io::TensorView& view,
                        const std::vector<std::int64_t>& shape, const precision::FourBits& quantization) {
  const io::TensorView* scales = mxfp4_scales(checkpoint, view.name);
  if (scales == nullptr) fail_quantized(view.name, "blocks of mxfp4 with scales beside them", "no scales");
  const std::int64_t rows = shape[0], columns = shape[1];
  if (columns % quantization.block != 0) {
    fail_quantized(view.name, "rows of whole blocks of " + std::to_string(quantization.block) + " numbers",
                   std::to_string(columns) + " in a row");
  }
  require_bytes(view, {rows, columns / 2});
  require_bytes(*scales, {rows, columns / quantization.block});
  at::Tensor copy;
  const std::string_view codes = dense_view(*scales, &copy).bytes;
  if (codes.find(static_cast<char>(kNanScale)) != std::string_view::npos)
    fail_quantized(scales->name, "numbers", "NaN among them");
  const ops::QuantizedLayout layout(rows * columns, quantization);
  const std::vector<float> ones(static_cast<std::size_t>(layout.nested_blocks), 1.0F);
  const float offset = 0;
  return {.copied = {{.view = &view, .begin = 0, .low_bits_first = true},
                     {.view = scales, .begin = layout.scales_begin}},
          .made = {{bytes_of(ones), layout.nested_scales_begin},
                   {bytes_of(powers_of_two()), layout.nested_book_begin},
                   {bytes_of(offset), layout.offset_begin},
                   {bytes_of(ops::code_book(quantization.book)), layout.book_begin}}};
}

}  // namespace lorikeet::models
