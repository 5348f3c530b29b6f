#include "text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace lorikeet::text {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

struct Range {
  char32_t first;
  char32_t last;
};

// Runs of assigned code points that are unchanged by NFC whatever stands beside them, as long as the
// neighbours come from these runs too (no combining marks, no conjoining jamo, no singletons). Covers most
// text, so that the general algorithm is rarely run. A test holds each one to utf8proc.
constexpr std::array<Range, 12> kInertInNfc{{{0x0000, 0x02FF},
                                             {0x0400, 0x0482},
                                             {0x048A, 0x052F},
                                             {0x05D0, 0x05EA},
                                             {0x0621, 0x064A},
                                             {0x0E01, 0x0E30},
                                             {0x2010, 0x2027},
                                             {0x3000, 0x3020},
                                             {0x3041, 0x3096},
                                             {0x30A1, 0x30FE},
                                             {0x4E00, 0x9FFF},
                                             {0xAC00, 0xD7A3}}};

bool surely_nfc(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (byte_at(text, at) < 0xCC) {  // below U+0300
      at += utf8_length(text[at]);
      continue;
    }
    const char32_t c = next_code_point(text, at);
    bool inert = c >= 0xFF01 && c <= 0xFF60;
    for (const Range& range : kInertInNfc) inert = inert || (c >= range.first && c <= range.last);
    if (!inert) return false;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1F) << 6 | (byte_at(text, at + 1) & 0x3F);
    at += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c =
        (lead & 0x0F) << 12 | (byte_at(text, at + 1) & 0x3F) << 6 | (byte_at(text, at + 2) & 0x3F);
    at += 3;
    return c;
  }
  const char32_t c = (lead & 0x07) << 18 | (byte_at(text, at + 1) & 0x3F) << 12 |
                     (byte_at(text, at + 2) & 0x3F) << 6 | (byte_at(text, at + 3) & 0x3F);
  at += 4;
  return c;
}

char32_t previous_code_point(std::string_view text, std::size_t& end) {
  do {
    --end;
  } while ((byte_at(text, end) & 0xC0) == 0x80);
  std::size_t at = end;
  return next_code_point(text, at);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

std::string to_lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char32_t c = next_code_point(text, at);
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {  // the one code point whose full lowercase mapping is longer than one
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

void normalize(std::string& text, NormalForm form) {
  if (form == NormalForm::kNFC ? surely_nfc(text) : is_ascii(text)) return;
  const bool compat = form == NormalForm::kNFKC || form == NormalForm::kNFKD;
  const bool compose = form == NormalForm::kNFC || form == NormalForm::kNFKC;
  // A set of flags, whatever its type says. NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0) |
                                                      (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length < 0) {
    throw Error(std::string("[tokenizer] Unicode normalisation failed: ") + utf8proc_errmsg(length));
  }
  text.assign(reinterpret_cast<const char*>(result), static_cast<std::size_t>(length));
}

std::string to_utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  std::size_t at = 0;
  while (at < bytes.size()) {
    const unsigned lead = byte_at(bytes, at);
    if (lead < 0x80) {
      out += bytes[at++];
      continue;
    }
    // Bounds of the second byte (Unicode, table 3-7); later ones are always 80..BF.
    std::size_t length = 0;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    std::size_t good = length == 0 ? 0 : 1;
    while (good > 0 && good < length && at + good < bytes.size() && byte_at(bytes, at + good) >= low &&
           byte_at(bytes, at + good) <= high) {
      ++good;
      low = 0x80;
      high = 0xBF;
    }
    if (length != 0 && good == length) {
      out += bytes.substr(at, length);
      at += length;
    } else {
      out += "\xEF\xBF\xBD";
      at += good == 0 ? 1 : good;
    }
  }
  return out;
}

}  // namespace lorikeet::text
