#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Characters as Python's str sees them: code points of UTF-8 text, and their classes.
namespace lorikeet::text::jinja {

/// Offset behind the character at `at`.
std::size_t next_character(std::string_view text, std::size_t at);
std::int64_t count_characters(std::string_view text);
/// Byte offset of the character with number `index`; the text's size where there are no more.
std::size_t offset_of(std::string_view text, std::int64_t index);

/// str.isspace
bool is_space(char32_t c);
bool is_space_at(std::string_view text, std::size_t at);
/// str.isprintable: what repr leaves as it is.
bool is_printable(char32_t c);
bool is_letter(char32_t c);
/// str.isdecimal, isdigit and isnumeric: superscripts are digits but no decimals, fractions only numeric.
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric_character(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

std::string upper(char32_t c);
std::string lower(char32_t c);
std::string title(char32_t c);

}  // namespace lorikeet::text::jinja
