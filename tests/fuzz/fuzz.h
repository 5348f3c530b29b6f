#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

// What all fuzz targets share. A target hands any bytes to one reader: it has to give a value or throw
// lorikeet::Error. Every other exception, a finding of the sanitizers, a hang and a broken promise about an
// accepted value end the process, which is how libFuzzer learns of them.
namespace lorikeet::fuzz {

inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// What `read` gives, or nothing when it refuses its input with an Error.
template <typename Read>
auto accepted(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Holds for every accepted value, whatever the input was.
inline void require(bool promise) {
  if (!promise) std::abort();
}

}  // namespace lorikeet::fuzz
