#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <sstream>
#include <string>
#include <type_traits>

namespace lorikeet::apps {

/// Accepts the numbers from `least` to `most`. CLI11's own ranges let NaN through, and integers that fit no
/// 64 bits.
template <typename Number>
CLI::Validator between(Number least, Number most) {
  const auto check = [least, most](std::string& text) -> std::string {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && number >= least && number <= most) return "";
    std::ostringstream message;
    message << "expected " << (std::is_integral_v<Number> ? "an integer" : "a number") << " from " << least
            << " to " << most << ", got '" << text << "'";
    return message.str();
  };
  return {check, ""};
}

}  // namespace lorikeet::apps
