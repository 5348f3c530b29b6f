#include "io/step_folder.h"

#include <charconv>

namespace lorikeet::io {
namespace {

constexpr std::string_view kPrefix = "step_";

}  // namespace

std::string step_folder_name(std::int64_t step) { return std::string(kPrefix) + std::to_string(step); }

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || name != step_folder_name(step)) return std::nullopt;
  return step;
}

}  // namespace lorikeet::io
