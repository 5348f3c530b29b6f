#pragma once

#include <cstdint>
#include <string_view>

namespace lorikeet {

/// CRC-32C of `bytes`: the checksum with Castagnoli's polynomial, as RFC 3720 (iSCSI), appendix B.4, defines
/// it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace lorikeet
