#include "models/stored_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "models/quantization_state.h"
#include "models/tensor_pieces.h"

namespace lorikeet::models {

const io::TensorView& companion(const io::Checkpoint& checkpoint, const std::string& name, DType dtype,
                                std::int64_t elements) {
  const io::TensorView* view = checkpoint.find(name);
  if (view == nullptr) fail_quantized(name, "it beside its codes", "no such tensor");
  const auto bytes = static_cast<std::size_t>(elements) * dtype_size(dtype);
  if (view->dtype != dtype || view->bytes.size() != bytes) {
    fail_quantized(name, std::to_string(elements) + " of " + std::string(dtype_name(dtype)),
                   io::shape_text(view->shape) + " of " + std::string(dtype_name(view->dtype)));
  }
  return *view;
}

at::Tensor finite_numbers(const io::TensorView& view) {
  std::vector<char> scratch;
  const at::Tensor numbers =
      flat_tensor(view.dtype, view.bytes, &scratch).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  const float* begin = numbers.const_data_ptr<float>();
  if (!std::all_of(begin, begin + numbers.numel(), [](float value) { return std::isfinite(value); }))
    fail_quantized(view.name, "finite numbers", "NaN or infinity among them");
  return numbers;
}

}  // namespace lorikeet::models
