#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/error_text.h"

namespace lorikeet::test {

/// A safetensors file's bytes: the length of `json`, `json`, and `data_bytes` bytes of data.
inline std::string safetensors_bytes(const std::string& json, std::size_t data_bytes) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  out += json;
  for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i);
  return out;
}

/// One tensor's member of a header.
inline std::string member(const std::string& name, const std::string& dtype, const std::string& shape,
                          std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace lorikeet::test
