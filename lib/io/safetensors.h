#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/safetensors_header.h"

namespace lorikeet::io {

/// A tensor in a mapped file. Row-major, little-endian; `bytes` need not be aligned to the element size, and
/// live as long as the file that they were taken from.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::string_view bytes;
  std::size_t file = 0;  ///< which of a checkpoint's files holds it

  /// What is known of a part of a tensor in the file (Checkpoint::name_part): that tensor's name, and by how
  /// many elements its rows, and the elements of a row, lie apart. `bytes` are all from its first element to
  /// its last.
  struct Part {
    std::string of;
    std::int64_t row_step, element_step;
  };
  std::optional<Part> part = {};

  /// Whether the elements follow each other in `bytes`.
  bool is_dense() const;
};

/// A safetensors file, mapped into memory and checked as a whole when opened.
class SafetensorsFile {
 public:
  /// Throws Error that names the file, and the tensor where one is at fault. `number` goes into the views'
  /// `file`.
  static SafetensorsFile open(const std::filesystem::path& path, std::size_t number = 0);

  const std::filesystem::path& path() const { return map_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// In the order of their bytes.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// nullptr when the file doesn't hold it.
  const TensorView* find(std::string_view name) const;

  /// Gives the pages of a tensor of this file back to the system once it was converted. Bytes that lie
  /// elsewhere, as those of a copy do, are left alone.
  void drop_pages(const TensorView& tensor) const;

 private:
  explicit SafetensorsFile(MappedFile map) : map_(std::move(map)) {}

  MappedFile map_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace lorikeet::io
