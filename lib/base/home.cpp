#include "base/home.h"

#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet {

std::string expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    throw Error("[path] '" + escape_control(path) +
                "': expected the variable HOME, got none; write the whole path");
  }
  return home + path.substr(1);
}

}  // namespace lorikeet
