#pragma once

#include <cstdint>

namespace lorikeet::train {

/// Largest resident set of this process so far, in bytes (VmHWM; 0 where /proc is absent).
std::uint64_t peak_resident_bytes();

/// Resident set of this process now, in bytes.
std::uint64_t resident_bytes();

}  // namespace lorikeet::train
