#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

// The header of a safetensors file: 8 bytes with its length (little-endian), then JSON, then the tensors'
// bytes. Format: https://github.com/huggingface/safetensors ("Format"). Nothing in a file is trusted before
// it is checked.
namespace lorikeet::io {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

/// Elements of a shape; throws Error (starting with `where`) for a negative extent or a product over 2^58.
std::int64_t element_count(const std::vector<std::int64_t>& shape, const std::string& where);

/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Bytes of a tensor; throws Error as element_count does.
std::uint64_t byte_size(const TensorSpec& tensor);

struct SafetensorsHeader {
  struct Entry {
    TensorSpec tensor;
    std::uint64_t offset = 0;  ///< in the file
    std::uint64_t bytes = 0;
  };
  std::vector<Entry> entries;  ///< by offset
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  ///< where the header ends
};

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Reads the header out of a whole file's bytes. Checks everything that a header can claim: a length of at
/// most 100 MB and within the file, known dtypes, shapes whose product fits, sizes equal to dtype times
/// shape, and ranges that cover the data exactly, without overlap or gap. Throws Error naming `file` and the
/// tensor.
SafetensorsHeader parse_safetensors_header(std::string_view file_bytes, const std::string& file);

/// The order in which the format's reference writes tensors, which keeps each aligned to its element size:
/// dtypes from large to small (ties by the reference's own order), then names.
void sort_for_safetensors(std::vector<TensorSpec>& tensors);

/// The first bytes of a file with `tensors` in this order: length, JSON, blanks up to a multiple of 8.
/// Throws Error for a repeated name or one that the format reserves.
std::string format_safetensors_header(const std::vector<TensorSpec>& tensors,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace lorikeet::io
