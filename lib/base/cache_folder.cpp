#include "base/cache_folder.h"

#include <cstdlib>

namespace lorikeet {
namespace {

std::optional<std::filesystem::path> absolute_from_env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value != '/') return std::nullopt;
  return std::filesystem::path(value);
}

}  // namespace

std::optional<std::filesystem::path> cache_folder() {
  if (const auto cache = absolute_from_env("XDG_CACHE_HOME")) return *cache / "lorikeet";
  if (const auto home = absolute_from_env("HOME")) return *home / ".cache" / "lorikeet";
  return std::nullopt;
}

}  // namespace lorikeet
