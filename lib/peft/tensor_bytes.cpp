#include "peft/tensor_bytes.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/strings.h"
#include "ops/dtype.h"

namespace lorikeet::peft {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t d : shape) parts.push_back(std::to_string(d));
  return "[" + join(parts, ", ") + "]";
}

}  // namespace

void TensorBytes::add(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor& host = kept_.emplace_back(tensor.detach().cpu().contiguous());
  entries_.push_back({{name, ops::from_torch(host.scalar_type()), host.sizes().vec()},
                      {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}});
}

void copy_into(const io::TensorSpec& spec, std::string_view bytes, const at::Tensor& target,
               const std::string& where) {
  if (spec.shape != target.sizes().vec()) {
    throw Error("[" + where + "] tensor '" + spec.name + "': expected shape " +
                shape_text(target.sizes().vec()) + ", got " + shape_text(spec.shape));
  }
  const at::NoGradGuard no_grad;
  std::string aligned(bytes);  // the file's bytes need not be aligned to their element size
  target.copy_(
      at::from_blob(aligned.data(), spec.shape, at::TensorOptions().dtype(ops::to_torch(spec.dtype))));
}

}  // namespace lorikeet::peft
