#include "text/jinja/text_functions.h"

#include <algorithm>
#include <string>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

bool is_stripped(std::string_view character, std::optional<std::string_view> characters) {
  if (!characters) return is_space_at(character, 0);
  for (std::size_t at = 0; at < characters->size();) {
    const std::size_t end = next_character(*characters, at);
    if (characters->substr(at, end - at) == character) return true;
    at = end;
  }
  return false;
}

// `convert` of each character (its number and the one before it), with the character's origin.
template <typename Convert>
MarkedText converted(const MarkedText& text, Convert convert) {
  MarkedText out = text.emptied();
  char32_t before = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text.bytes(), at);
    out.append(convert(c, before, begin), text.origin_at(begin));
    before = c;
  }
  return out;
}

bool is_cased(char32_t c) { return is_letter(c) && (upper(c) != lower(c)); }

bool is_case_ignorable(char32_t c) {
  return !is_letter(c) && !is_space(c) && c != 0 &&
         (c == '\'' || c == '.' || c == ':' || c == 0x2019 || c == 0xAD || c == 0xB7);
}

// A sigma at a word's end is written as final one.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    const char32_t c = previous_code_point(text, begin);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const char32_t c = next_code_point(text, end);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

std::string lower_at(std::string_view text, char32_t c, std::size_t begin) {
  if (c == 0x3A3) return is_final_sigma(text, begin, next_character(text, begin)) ? "\u03c2" : "\u03c3";
  return lower(c);
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

MarkedText stripped(const MarkedText& text, std::optional<std::string_view> characters, bool left,
                    bool right) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0, end = bytes.size();
  while (left && begin < end) {
    const std::size_t next = next_character(bytes, begin);
    if (!is_stripped(bytes.substr(begin, next - begin), characters)) break;
    begin = next;
  }
  while (right && end > begin) {
    std::size_t last = end;
    previous_code_point(bytes, last);
    if (!is_stripped(bytes.substr(last, end - last), characters)) break;
    end = last;
  }
  return begin == 0 && end == bytes.size() ? text : text.substr(begin, end);
}

std::vector<MarkedText> split_at(const MarkedText& text, std::string_view separator, std::int64_t limit,
                                 bool from_right) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> parts;
  if (from_right) {
    std::size_t end = bytes.size();
    for (; limit != 0; --limit) {
      if (end < separator.size()) break;
      const std::size_t found = bytes.rfind(separator, end - separator.size());
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(found + separator.size(), end));
      end = found;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::size_t begin = 0;
  for (; limit != 0; --limit) {
    const std::size_t found = bytes.find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(begin, found));
    begin = found + separator.size();
  }
  parts.push_back(text.substr(begin, bytes.size()));
  return parts;
}

std::vector<MarkedText> split_words(const MarkedText& text, std::int64_t limit, bool from_right) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> words;
  if (from_right) {
    MarkedText rest = stripped(text, {}, false, true);
    while (!rest.empty()) {
      std::size_t begin = limit == 0 ? 0 : rest.size();
      while (begin > 0) {
        std::size_t at = begin;
        if (is_space(previous_code_point(rest.bytes(), at))) break;
        begin = at;
      }
      words.push_back(rest.substr(begin, rest.size()));
      rest = stripped(rest.substr(0, begin), {}, false, true);
      if (limit > 0) --limit;
    }
    if (limit == 0 && !words.empty()) words.back() = stripped(words.back(), {}, false, true);
    std::reverse(words.begin(), words.end());
    return words;
  }
  for (std::size_t at = 0;;) {
    while (at < bytes.size() && is_space_at(bytes, at)) at = next_character(bytes, at);
    if (at == bytes.size()) return words;
    if (limit == 0) {
      words.push_back(text.substr(at, bytes.size()));
      return words;
    }
    const std::size_t begin = at;
    while (at < bytes.size() && !is_space_at(bytes, at)) at = next_character(bytes, at);
    words.push_back(text.substr(begin, at));
    if (limit > 0) --limit;
  }
}

std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(bytes, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.substr(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.substr(begin, bytes.size()));
  return lines;
}

MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, std::int64_t limit) {
  const std::string_view bytes = text.bytes();
  MarkedText out = text.emptied();
  std::size_t begin = 0;
  if (from.empty()) {
    for (; limit != 0; --limit) {
      out.append(to);
      if (begin == bytes.size()) return out;
      const std::size_t end = next_character(bytes, begin);
      out.append(text, begin, end);
      begin = end;
    }
  }
  for (; limit != 0 && !from.empty(); --limit) {
    const std::size_t found = bytes.find(from, begin);
    if (found == std::string_view::npos) break;
    out.append(text, begin, found);
    out.append(to);
    begin = found + from.size();
  }
  out.append(text, begin, bytes.size());
  return out;
}

MarkedText upper_case(const MarkedText& text) {
  return converted(text, [](char32_t c, char32_t, std::size_t) { return upper(c); });
}

MarkedText lower_case(const MarkedText& text) {
  return converted(text, [&](char32_t c, char32_t, std::size_t at) { return lower_at(text.bytes(), c, at); });
}

MarkedText swapped_case(const MarkedText& text) {
  return converted(text, [&](char32_t c, char32_t, std::size_t at) {
    return is_upper(c) ? lower_at(text.bytes(), c, at) : upper(c);
  });
}

MarkedText capitalized(const MarkedText& text) {
  return converted(text, [&](char32_t c, char32_t, std::size_t at) {
    return at == 0 ? title(c) : lower_at(text.bytes(), c, at);
  });
}

MarkedText title_case(const MarkedText& text) {
  return converted(text, [&](char32_t c, char32_t before, std::size_t at) {
    return is_cased(before) ? lower_at(text.bytes(), c, at) : title(c);
  });
}

MarkedText title_words(const MarkedText& text) {
  MarkedText out = converted(text, [&](char32_t c, char32_t before, std::size_t at) {
    const bool begins = at == 0 || is_space(before) ||
                        (before < 0x80 &&
                         std::string_view("-({[<").find(static_cast<char>(before)) != std::string_view::npos);
    return begins ? upper(c) : lower_at(text.bytes(), c, at);
  });
  out.set_safe(false);  // the filter joins plain parts
  return out;
}

MarkedText padded(const MarkedText& text, std::int64_t left, std::int64_t right, std::string_view fill) {
  MarkedText out = text.emptied();
  for (; left > 0; --left) out.append(fill, kFromTemplate);
  out.append(text);
  for (; right > 0; --right) out.append(fill, kFromTemplate);
  return out;
}

}  // namespace lorikeet::text::jinja
