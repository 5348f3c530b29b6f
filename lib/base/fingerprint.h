#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lorikeet {

// A fingerprint's text carries the version of the function that made it, "v2:<hex>", so that a later function
// doesn't make everything look changed that an earlier one has seen. A text may hold several, one for each
// function, separated by blanks: "v1:<hex> v2:<hex>". One without a version is version 1.

/// "v<version>:<hex>".
std::string versioned_fingerprint(int version, const std::string& hex);

/// What the newest function that both texts know made of each side, which are equal for equal things; nullopt
/// where no function is common to both.
std::optional<std::pair<std::string, std::string>> comparable_fingerprints(std::string_view a,
                                                                           std::string_view b);

}  // namespace lorikeet
