#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace lorikeet::text {
namespace {

constexpr int kAlphabetEnd = 0x144;  // one past the last character of the alphabet

struct Alphabet {
  std::array<char32_t, 256> to_char{};
  std::array<int, kAlphabetEnd> to_byte{};

  constexpr Alphabet() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      to_char[byte] = printable ? static_cast<char32_t>(byte) : next++;
      to_byte[to_char[byte]] = static_cast<int>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_char(unsigned char byte) { return kAlphabet.to_char[byte]; }

std::string bytes_to_chars(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, byte_to_char(static_cast<unsigned char>(byte)));
  return out;
}

std::optional<std::string> chars_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char32_t c = next_code_point(text, at);
    if (c >= kAlphabetEnd || kAlphabet.to_byte[c] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.to_byte[c]);
  }
  return out;
}

}  // namespace lorikeet::text
