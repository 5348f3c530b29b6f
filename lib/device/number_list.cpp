#include "device/number_list.h"

#include <charconv>

#include "base/strings.h"

namespace lorikeet::device {
namespace {

constexpr int kMostNumber = 65535;

}  // namespace

std::optional<int> parse_decimal(std::string_view text, int most) {
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc{} || rest != text.data() + text.size() ||
      value > most) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::vector<int>> parse_number_list(std::string_view text) {
  std::vector<int> numbers;
  for (const std::string& range : split(text, ',')) {
    const std::size_t dash = range.find('-');
    const auto first = parse_decimal(std::string_view(range).substr(0, dash), kMostNumber);
    const auto last = dash == std::string::npos
                          ? first
                          : parse_decimal(std::string_view(range).substr(dash + 1), kMostNumber);
    if (!first || !last || *last < *first) return std::nullopt;
    // Ranges that overlap again and again would let a short text ask for much memory.
    if (!numbers.empty() && *first <= numbers.back()) return std::nullopt;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string format_number_list(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace lorikeet::device
