#include "base/fingerprint.h"

#include <charconv>
#include <functional>
#include <map>

#include "base/strings.h"

namespace lorikeet {
namespace {

// The newest version first.
std::map<int, std::string, std::greater<>> by_version(std::string_view text) {
  std::map<int, std::string, std::greater<>> found;
  for (const std::string& part : split(text, ' ')) {
    const std::size_t colon = part.find(':');
    int version = 0;
    if (part.starts_with('v') && colon != std::string::npos) {
      const char* end = part.data() + colon;
      const auto [stop, error] = std::from_chars(part.data() + 1, end, version);
      if (error != std::errc() || stop != end) version = 0;
    }
    if (version > 0) {
      found[version] = part.substr(colon + 1);
    } else {
      found[1] = part;
    }
  }
  return found;
}

}  // namespace

std::string versioned_fingerprint(int version, const std::string& hex) {
  return "v" + std::to_string(version) + ":" + hex;
}

std::optional<std::pair<std::string, std::string>> comparable_fingerprints(std::string_view a,
                                                                           std::string_view b) {
  const auto of_a = by_version(a), of_b = by_version(b);
  for (const auto& [version, fingerprint] : of_a) {
    const auto other = of_b.find(version);
    if (other != of_b.end()) return std::pair(fingerprint, other->second);
  }
  return std::nullopt;
}

}  // namespace lorikeet
