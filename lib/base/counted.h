#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace lorikeet {

/// "1 row", "2 rows", "0 rows": a count with its noun in singular or plural. `many` is the plural where that
/// isn't `one` with an s.
template <std::integral Count>
std::string counted(Count n, std::string_view one, std::string_view many = {}) {
  std::string text = std::to_string(n) + " ";
  text += n == 1 || many.empty() ? one : many;
  return n == 1 || !many.empty() ? text : text + "s";
}

}  // namespace lorikeet
