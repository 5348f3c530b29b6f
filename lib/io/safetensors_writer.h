#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "io/safetensors_header.h"

namespace lorikeet::io {

/// Writes a safetensors file tensor by tensor, so that only one has to be in memory. The same tensors give
/// the same bytes, whatever their order was, and the bytes equal those of the format's reference.
class SafetensorsWriter {
 public:
  /// Makes the temporary file and writes the header. Throws Error for repeated names or when it can't be
  /// written.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {}, unsigned mode = 0644);

  /// The order in which `write` takes the tensors.
  const std::vector<TensorSpec>& order() const { return tensors_; }

  /// The whole next tensor; throws Error if its size isn't the declared one.
  void write(std::string_view bytes);

  /// Puts the file in place; every tensor has to be written by then.
  void finish();

 private:
  std::vector<TensorSpec> tensors_;
  std::size_t next_ = 0;
  AtomicFile file_;
};

/// A tensor to write, with its bytes (row-major, little-endian) where they lie.
struct TensorEntry {
  TensorSpec spec;
  std::string_view bytes;
};

/// Writes all entries atomically, without copying them.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                       const std::map<std::string, std::string>& metadata = {}, unsigned mode = 0644);

}  // namespace lorikeet::io
