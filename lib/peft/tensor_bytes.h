#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors_writer.h"

namespace lorikeet::peft {

/// Tensors on their way into a safetensors file: holds CPU copies for as long as their bytes are needed.
class TensorBytes {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  const std::vector<io::TensorEntry>& entries() const { return entries_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<io::TensorEntry> entries_;
};

/// Copies a stored tensor into `target`, which has its shape. Throws Error (starting with `where`) when
/// shapes differ or the stored dtype isn't a floating one.
void copy_into(const io::TensorSpec& spec, std::string_view bytes, const at::Tensor& target,
               const std::string& where);

}  // namespace lorikeet::peft
