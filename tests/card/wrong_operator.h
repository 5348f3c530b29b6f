#pragma once

#include <cstdlib>
#include <string_view>

namespace lorikeet::card {

/// FAKE_CARD_WRONG_OPERATOR names an operator of ATen that computes wrong, as one of a broken card might.
inline bool computes_wrong(std::string_view name) {
  static const char* const wrong = std::getenv("FAKE_CARD_WRONG_OPERATOR");
  return wrong != nullptr && name == wrong;
}

}  // namespace lorikeet::card
