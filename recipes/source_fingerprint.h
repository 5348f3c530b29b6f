#pragma once

#include <string_view>

namespace lorikeet::recipes {

/// Which sources this program was built from: a sha256 over the names and contents of all that it is made of,
/// the same for the same commit on every machine. Written by the build (cmake/SourceFingerprint.cmake).
std::string_view source_fingerprint();

}  // namespace lorikeet::recipes
