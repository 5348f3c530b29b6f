#include "peft/tensor_bytes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "nn/reorder_rows.h"
#include "ops/dtype.h"

namespace lorikeet::peft {

void TensorBytes::add(const std::string& name, const at::Tensor& tensor, const nn::RowOrder& order) {
  const at::Tensor& host = kept_.emplace_back(nn::to_module_order(tensor.detach().cpu(), order).contiguous());
  entries_.push_back({{name, ops::from_torch(host.scalar_type()), host.sizes().vec()},
                      {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}});
}

void copy_into(const io::TensorSpec& spec, std::string_view bytes, const at::Tensor& target,
               const std::string& where, const nn::RowOrder& order) {
  if (spec.shape != target.sizes().vec()) {
    throw Error("[" + where + "] tensor '" + spec.name + "': expected shape " +
                io::shape_text(target.sizes().vec()) + ", got " + io::shape_text(spec.shape));
  }
  if (!is_floating(spec.dtype)) {
    throw Error("[" + where + "] tensor '" + spec.name + "': expected a floating dtype, got " +
                std::string(dtype_name(spec.dtype)));
  }
  const at::NoGradGuard no_grad;
  std::string aligned(bytes);  // the file's bytes need not be aligned to their element size
  const at::Tensor stored =
      at::from_blob(aligned.data(), spec.shape, at::TensorOptions().dtype(ops::to_torch(spec.dtype)));
  target.copy_(nn::to_group_order(stored, order));
}

}  // namespace lorikeet::peft
