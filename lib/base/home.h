#pragma once

#include <string>

namespace lorikeet {

/// `path` with a leading "~" (alone, or before a '/') replaced by the variable HOME, as a shell writes it.
/// "~user/..." and everything else stays as it is; "./~" names a folder of that name. Throws Error where HOME
/// would be needed and isn't set.
std::string expand_home(const std::string& path);

}  // namespace lorikeet
