#include "base/temporary.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace lorikeet {
namespace {

constexpr std::string_view kSeparator = ".tmp-";
constexpr std::size_t kRandomBytes = 8;
constexpr std::size_t kMostPidDigits = 10;

bool all_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  std::array<char, kRandomBytes> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    throw Error(std::string("[file] the system gives no random bytes: ") + std::strerror(errno),
                ErrorKind::kEnvironment);
  return path.string() + std::string(kSeparator) + to_hex({random.data(), random.size()});
}

std::optional<std::string> temporary_target(std::string_view name) {
  const std::size_t at = name.rfind(kSeparator);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view ending = name.substr(at + kSeparator.size());
  const bool random = ending.size() == 2 * kRandomBytes && all_of(ending, "0123456789abcdef");
  const bool pid = !ending.empty() && ending.size() <= kMostPidDigits && all_of(ending, "0123456789");
  if (!random && !pid) return std::nullopt;
  return std::string(name.substr(0, at));
}

}  // namespace lorikeet
