#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lorikeet {

/// HMAC-SHA256 (RFC 2104) of `bytes` under `key`, in 64 lower-case hexadecimal digits.
std::string hmac_sha256_hex(std::string_view key, std::string_view bytes);

/// Whether two texts are equal, in a time that tells nothing of where they differ (only their lengths).
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// `bytes` random bytes of the kernel's (getrandom), in hexadecimal: for nonces. Throws Error (kEnvironment).
std::string random_hex(std::size_t bytes);

}  // namespace lorikeet
