#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// UTF-8 and the few character properties that tokenizers ask for. Text here is well-formed UTF-8 unless said
// otherwise; callers check it once (`is_utf8`) where it enters.
namespace lorikeet::text {

/// Bytes of the character that starts with `lead`.
constexpr std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at `text[at]`; moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// The code point that ends just before `end`; moves `end` to its first byte. `end` must be > 0.
char32_t previous_code_point(std::string_view text, std::size_t& end);

void append_utf8(std::string& out, char32_t code_point);

/// Property White_Space, as Rust's char::is_whitespace.
bool is_whitespace(char32_t c);
/// General categories Nd, Nl, No, as Rust's char::is_numeric.
bool is_numeric(char32_t c);
/// ASCII punctuation (symbols such as '$' too) or a general category P*.
bool is_punctuation(char32_t c);

/// Per-character lowercase as Rust's char::to_lowercase: no context, and U+0130 becomes two code points.
std::string to_lowercase(std::string_view text);

enum class NormalForm : std::uint8_t { kNFC, kNFD, kNFKC, kNFKD };

/// Brings `text` into a Unicode normal form (UAX #15).
void normalize(std::string& text, NormalForm form);

/// Any bytes to UTF-8: each maximal part of an ill-formed sequence becomes U+FFFD (Unicode 15, section 3.9,
/// "substitution of maximal subparts"; Rust's String::from_utf8_lossy).
std::string to_utf8_lossy(std::string_view bytes);

}  // namespace lorikeet::text
