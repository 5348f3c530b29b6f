#pragma once

#include <string_view>

namespace lorikeet {

/// The project's version, as in CMakeLists.txt (a test holds the two together).
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace lorikeet
