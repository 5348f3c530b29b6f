#include <ATen/ATen.h>

#include <algorithm>

#include "models/quantization_state.h"
#include "models/stored_matrix.h"
#include "ops/quantized/float8.h"
#include "ops/quantized/float8_layout.h"

namespace lorikeet::models {
namespace {

const io::TensorView* scales_of(const io::Checkpoint& checkpoint, const std::string& name) {
  if (const auto* inverse = checkpoint.find(name + "_scale_inv")) return inverse;
  return checkpoint.find(name + "_scale");
}

bool fits(const std::vector<std::int64_t>& shape, const ops::Float8Layout& layout) {
  if (shape == std::vector<std::int64_t>{layout.scale_rows, layout.scale_cols}) return true;
  // A scale a row, or one for all, also without the extents of 1.
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return layout.scale_cols == 1 && shape.size() < 2 && elements == layout.scale_rows;
}

}  // namespace

std::vector<const io::TensorView*> float8_companions(const io::Checkpoint& checkpoint,
                                                     const io::TensorView& view) {
  std::vector<const io::TensorView*> found;
  for (const char* name : {"_scale_inv", "_scale"}) {
    if (const auto* tensor = checkpoint.find(view.name + name)) found.push_back(tensor);
  }
  constexpr std::string_view kWeight = "weight";
  if (view.name.ends_with(kWeight)) {
    const std::string module = view.name.substr(0, view.name.size() - kWeight.size());
    for (const char* name : {"input_scale", "activation_scale"})
      if (const auto* tensor = checkpoint.find(module + name)) found.push_back(tensor);
  }
  return found;
}

StoredMatrix read_float8(const io::Checkpoint& checkpoint, const io::TensorView& view,
                         const std::vector<std::int64_t>& shape, const precision::Float8& quantization) {
  if (view.shape != shape)
    fail_quantized(view.name, "the shape " + io::shape_text(shape), io::shape_text(view.shape));
  const io::TensorView* scales = scales_of(checkpoint, view.name);
  if (scales == nullptr)
    fail_quantized(view.name, view.name + "_scale_inv or " + view.name + "_scale beside it", "neither");
  const ops::Float8Layout layout(shape[0], shape[1], quantization);
  if (!is_floating(scales->dtype) || !fits(scales->shape, layout)) {
    fail_quantized(scales->name,
                   io::shape_text({layout.scale_rows, layout.scale_cols}) + " floating numbers for " +
                       describe(quantization),
                   io::shape_text(scales->shape) + " of " + std::string(dtype_name(scales->dtype)));
  }
  const at::Tensor numbers = finite_numbers(*scales);
  const float* begin = numbers.const_data_ptr<float>();
  if (std::any_of(begin, begin + numbers.numel(), [](float scale) { return scale < 0; }))
    fail_quantized(scales->name, "scales of at least 0", "a negative one");
  return {.copied = {{&view, 0}}, .made = {{numbers.view(at::kByte), layout.scales_begin}}};
}

void require_float8_numbers(const io::TensorView& codes) {
  const auto is_nan = [](char code) { return (static_cast<std::uint8_t>(code) & 0x7FU) == ops::kFloat8Nan; };
  const auto found = std::find_if(codes.bytes.begin(), codes.bytes.end(), is_nan);
  if (found != codes.bytes.end()) fail_quantized(codes.name, "finite numbers", "NaN among its codes");
}

}  // namespace lorikeet::models
