#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/safetensors.h"

namespace lorikeet::io {

/// The tensors of a file that torch.save wrote, found in its dictionaries by their keys
/// ("model.lm_head.weight": the keys of nested ones joined by dots), in the file's order.
///
/// Such a file is a pickle, a program that Python would run. Nothing of it is run here: the few instructions
/// that put dictionaries, lists, texts, numbers and tensors together are read, any other object stays unread,
/// and unknown instructions are an Error.
class TorchArchive {
 public:
  /// Throws Error that names the file: for what isn't such a zip archive (also torch.save's format from
  /// before 1.6), for tensors that aren't contiguous or lie outside of their storage, for sparse and
  /// quantised ones.
  static TorchArchive open(const std::filesystem::path& path);
  /// The same of bytes; `name` stands in errors.
  static TorchArchive from_bytes(std::string bytes, const std::string& name);

  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  void read(std::string_view bytes, const std::string& name);

  std::unique_ptr<MappedFile> map_;
  std::unique_ptr<std::string> bytes_;
  std::vector<TensorView> tensors_;
};

}  // namespace lorikeet::io
