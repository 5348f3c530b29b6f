#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/expansion.h"

namespace lorikeet::data::columnar {

/// How pages and buffers are compressed.
enum class Codec : std::uint8_t { kNone, kSnappy, kGzip, kZstd, kLz4Block, kLz4Frame };

/// `bytes` unpacked, which must give exactly `size` bytes. `name` is the file's.
/// Throws Error for corrupt data, another size, and a size beyond `limits`, before memory is taken for it.
std::string unpack(Codec codec, std::string_view bytes, std::uint64_t size, const std::string& name,
                   const ExpansionLimits& limits);

}  // namespace lorikeet::data::columnar
