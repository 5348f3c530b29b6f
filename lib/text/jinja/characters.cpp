#include "text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

char32_t simple(utf8proc_int32_t (*convert)(utf8proc_int32_t), char32_t c) {
  return static_cast<char32_t>(convert(static_cast<utf8proc_int32_t>(c)));
}

// Characters whose upper case is more than one (Unicode's SpecialCasing.txt, those of European scripts).
struct SpecialCase {
  char32_t character;
  const char* upper;
  const char* title;
};
constexpr std::array<SpecialCase, 9> kSpecialCases{{{0xDF, "SS", "Ss"},
                                                    {0x149, "\u02bcN", "\u02bcN"},
                                                    {0x1F0, "J\u030c", "J\u030c"},
                                                    {0x587, "\u0535\u0552", "\u0535\u0582"},
                                                    {0xFB00, "FF", "Ff"},
                                                    {0xFB01, "FI", "Fi"},
                                                    {0xFB02, "FL", "Fl"},
                                                    {0xFB03, "FFI", "Ffi"},
                                                    {0xFB04, "FFL", "Ffl"}}};

const SpecialCase* special_case(char32_t c) {
  for (const SpecialCase& special : kSpecialCases)
    if (special.character == c) return &special;
  return nullptr;
}

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

}  // namespace

std::size_t next_character(std::string_view text, std::size_t at) {
  return std::min(text.size(), at + utf8_length(text[at]));
}

std::int64_t count_characters(std::string_view text) {
  std::int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

std::size_t offset_of(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at = next_character(text, at);
  return at;
}

bool is_space(char32_t c) { return is_whitespace(c) || (c >= 0x1C && c <= 0x1F); }

bool is_space_at(std::string_view text, std::size_t at) { return is_space(next_code_point(text, at)); }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric_character(char32_t c) { return is_numeric(c); }

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::string upper(char32_t c) {
  if (const SpecialCase* special = special_case(c)) return special->upper;
  return utf8(simple(utf8proc_toupper, c));
}

std::string lower(char32_t c) {
  if (c == 0x130) return "i\u0307";
  return utf8(simple(utf8proc_tolower, c));
}

std::string title(char32_t c) {
  if (const SpecialCase* special = special_case(c)) return special->title;
  return utf8(simple(utf8proc_totitle, c));
}

}  // namespace lorikeet::text::jinja
