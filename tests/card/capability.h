#pragma once

#include <cstdlib>

namespace lorikeet::card {

/// The cards' compute capability, 10 * major + minor: FAKE_CARD_CAPABILITY, or 90.
inline int capability() {
  const char* const text = std::getenv("FAKE_CARD_CAPABILITY");
  return text == nullptr ? 90 : static_cast<int>(std::strtol(text, nullptr, 10));
}

}  // namespace lorikeet::card
