#include "data/expansion.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::data {

void check_expansion(std::uint64_t produced, std::uint64_t consumed, const ExpansionLimits& limits,
                     const std::string& codec, const std::string& name) {
  const auto fail = [&](const std::string& what) -> Error {
    return Error("[data] '" + name + "': the " + codec + " data expands " + what);
  };
  if (produced > limits.max_bytes)
    throw fail("to more than " + format_bytes(limits.max_bytes) + ", which is the limit");
  if (produced > limits.ratio_free_bytes &&
      produced / std::max<std::uint64_t>(consumed, 1) > limits.max_ratio) {
    throw fail("more than " + std::to_string(limits.max_ratio) +
               " times, as no text does; unpack it yourself if you trust it");
  }
}

}  // namespace lorikeet::data
