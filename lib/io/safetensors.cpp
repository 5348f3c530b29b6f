#include "io/safetensors.h"

namespace lorikeet::io {

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
  if (tensor.bytes.empty()) return;
  map_.drop_pages(static_cast<std::size_t>(tensor.bytes.data() - map_.bytes().data()), tensor.bytes.size());
}

}  // namespace lorikeet::io
