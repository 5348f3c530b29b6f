#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors_writer.h"
#include "nn/row_order.h"

namespace lorikeet::peft {

/// Tensors on their way into a safetensors file: holds CPU copies for as long as their bytes are needed.
class TensorBytes {
 public:
  /// `tensor` in group order, which is written in module order.
  void add(const std::string& name, const at::Tensor& tensor, const nn::RowOrder& order = {});
  const std::vector<io::TensorEntry>& entries() const { return entries_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<io::TensorEntry> entries_;
};

/// Copies a stored tensor in module order into `target` of its shape, which gets group order. Throws Error
/// (starting with `where`) when shapes differ or the stored dtype isn't a floating one.
void copy_into(const io::TensorSpec& spec, std::string_view bytes, const at::Tensor& target,
               const std::string& where, const nn::RowOrder& order = {});

}  // namespace lorikeet::peft
