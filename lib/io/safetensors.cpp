#include "io/safetensors.h"

#include <functional>

namespace lorikeet::io {

bool TensorView::is_dense() const {
  if (!part) return true;
  return part->element_step == 1 && (shape.size() < 2 || part->row_step == shape.back());
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path, std::size_t number) {
  SafetensorsFile file{MappedFile(path)};
  const std::string_view bytes = file.map_.bytes();
  SafetensorsHeader header = parse_safetensors_header(bytes, path.string());
  file.metadata_ = std::move(header.metadata);
  file.tensors_.reserve(header.entries.size());
  for (SafetensorsHeader::Entry& entry : header.entries) {
    file.by_name_.emplace(entry.tensor.name, file.tensors_.size());
    file.tensors_.push_back({std::move(entry.tensor.name), entry.tensor.dtype, std::move(entry.tensor.shape),
                             bytes.substr(entry.offset, entry.bytes), number});
  }
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

void SafetensorsFile::drop_pages(const TensorView& tensor) const {
  const std::string_view file = map_.bytes();
  const std::less<const char*> before;
  if (tensor.bytes.empty() || before(tensor.bytes.data(), file.data()) ||
      !before(tensor.bytes.data(), file.data() + file.size()))
    return;
  map_.drop_pages(static_cast<std::size_t>(tensor.bytes.data() - file.data()), tensor.bytes.size());
}

}  // namespace lorikeet::io
