#include <ATen/ATen.h>

#include <algorithm>

#include "models/quantization_state.h"
#include "models/stored_matrix.h"
#include "ops/quantized/layout.h"

namespace lorikeet::models {
namespace {

using precision::CodeBook;
using precision::FourBits;

void require_ascending(const io::TensorView& view) {
  const at::Tensor values = finite_numbers(view);
  const float *begin = values.const_data_ptr<float>(), *end = begin + values.numel();
  const float* stop = std::adjacent_find(begin, end, [](float a, float b) { return a >= b; });
  if (stop == end) return;
  fail_quantized(view.name, "a code book that ascends",
                 std::to_string(*stop) + " before " + std::to_string(*(stop + 1)) + " at " +
                     std::to_string(stop - begin));
}

QuantizationState read_state(const io::TensorView& view) {
  if (view.dtype != DType::kU8)
    fail_quantized(view.name, "a JSON object as uint8", io::shape_text(view.shape));
  return parse_quantization_state(view.bytes, view.name);
}

void require_state(const io::TensorView& view, const QuantizationState& state,
                   const std::vector<std::int64_t>& shape, const FourBits& expected) {
  const FourBits& found = state.quantization;
  if (found.book != expected.book)
    fail_quantized(view.name, short_name(expected), "'" + short_name(found) + "'");
  if (state.shape != shape)
    fail_quantized(view.name, "the shape " + io::shape_text(shape), io::shape_text(state.shape));
  if (found.block != expected.block)
    fail_quantized(view.name, "blocksize " + std::to_string(expected.block), std::to_string(found.block));
  const bool nested = found.nested_block != 0;
  if (nested != (expected.nested_block != 0)) {
    fail_quantized(view.name,
                   nested ? "scales in fp32, as config.json says" : "nested scales, as config.json says",
                   nested ? "nested ones" : "fp32 ones");
  }
  if (found.nested_block != expected.nested_block) {
    fail_quantized(view.name, "nested_blocksize " + std::to_string(expected.nested_block),
                   std::to_string(found.nested_block));
  }
}

}  // namespace

const io::TensorView* four_bit_state(const io::Checkpoint& checkpoint, const std::string& name) {
  if (const auto* nf4 = checkpoint.find(name + ".quant_state.bitsandbytes__nf4")) return nf4;
  return checkpoint.find(name + ".quant_state.bitsandbytes__fp4");
}

std::vector<const io::TensorView*> four_bit_companions(const io::Checkpoint& checkpoint,
                                                       const io::TensorView& view) {
  std::vector<const io::TensorView*> found{four_bit_state(checkpoint, view.name)};
  for (const char* name : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    if (const auto* tensor = checkpoint.find(view.name + name)) found.push_back(tensor);
  }
  return found;
}

std::vector<std::int64_t> four_bit_shape(const io::Checkpoint& checkpoint, const io::TensorView& view) {
  return read_state(*four_bit_state(checkpoint, view.name)).shape;
}

StoredMatrix read_four_bits(const io::Checkpoint& checkpoint, const io::TensorView& view,
                            const std::vector<std::int64_t>& shape, const FourBits& quantization) {
  const io::TensorView& state_view = *four_bit_state(checkpoint, view.name);
  const QuantizationState state = read_state(state_view);
  require_state(state_view, state, shape, quantization);
  const ops::QuantizedLayout layout(shape[0] * shape[1], quantization);
  if (static_cast<std::int64_t>(view.bytes.size()) != layout.codes_bytes) {
    fail_quantized(view.name, std::to_string(layout.codes_bytes) + " bytes of codes",
                   std::to_string(view.bytes.size()));
  }
  const bool nested = quantization.nested_block != 0;
  const auto& absmax =
      companion(checkpoint, view.name + ".absmax", nested ? DType::kU8 : DType::kF32, layout.blocks);
  const auto& book = companion(checkpoint, view.name + ".quant_map", DType::kF32, 16);
  if (quantization.book == CodeBook::kNF4) {
    require_ascending(book);
  } else {
    finite_numbers(book);
  }
  StoredMatrix stored{.copied = {{&view, 0}, {&absmax, layout.scales_begin}, {&book, layout.book_begin}}};
  if (!nested) {
    finite_numbers(absmax);
    return stored;
  }
  const auto& scales = companion(checkpoint, view.name + ".nested_absmax", DType::kF32, layout.nested_blocks);
  finite_numbers(scales);
  const auto& nested_book = companion(checkpoint, view.name + ".nested_quant_map", DType::kF32, 256);
  require_ascending(nested_book);
  stored.copied.push_back({&scales, layout.nested_scales_begin});
  stored.copied.push_back({&nested_book, layout.nested_book_begin});
  stored.made.push_back({at::tensor({state.offset}).view(at::kByte), layout.offset_begin});
  return stored;
}

}  // namespace lorikeet::models
