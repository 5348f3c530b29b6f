#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::text {

/// Throws Error if `text`, given to a tokenizer, is not UTF-8.
inline void check_utf8_input(std::string_view text) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) {
    throw Error("[tokenizer] the text is not UTF-8 at byte " + std::to_string(bad) +
                "; convert it first (iconv -f WINDOWS-1252 -t UTF-8)");
  }
}

}  // namespace lorikeet::text
