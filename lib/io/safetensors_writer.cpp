#include "io/safetensors_writer.h"

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

std::vector<TensorSpec> sorted(std::vector<TensorSpec> tensors) {
  sort_for_safetensors(tensors);
  return tensors;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata, unsigned mode)
    : tensors_(sorted(std::move(tensors))), file_(path, mode) {
  file_.write(format_safetensors_header(tensors_, metadata));
}

void SafetensorsWriter::write(std::string_view bytes) {
  if (next_ == tensors_.size())
    throw Error("[safetensors] expected " + std::to_string(next_) + " tensors, got one more",
                ErrorKind::kRunFailed);
  const TensorSpec& tensor = tensors_[next_];
  if (bytes.size() != byte_size(tensor)) {
    throw Error("[safetensors] tensor '" + escape_control(tensor.name) + "': expected " +
                    std::to_string(byte_size(tensor)) + " bytes, got " + std::to_string(bytes.size()),
                ErrorKind::kRunFailed);
  }
  file_.write(bytes);
  ++next_;
}

void SafetensorsWriter::finish() {
  if (next_ != tensors_.size()) {
    throw Error("[safetensors] expected " + std::to_string(tensors_.size()) + " tensors, got " +
                    std::to_string(next_),
                ErrorKind::kRunFailed);
  }
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                       const std::map<std::string, std::string>& metadata, unsigned mode) {
  std::vector<TensorSpec> specs;
  std::map<std::string_view, std::string_view> bytes;
  for (const TensorEntry& entry : entries) {
    specs.push_back(entry.spec);
    bytes.emplace(entry.spec.name, entry.bytes);
  }
  SafetensorsWriter writer(path, std::move(specs), metadata, mode);
  for (const TensorSpec& tensor : writer.order()) writer.write(bytes.at(tensor.name));
  writer.finish();
}

}  // namespace lorikeet::io
