#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/marked_text.h"

// What Python's str methods do, on text that keeps its origins.
namespace lorikeet::text::jinja {

/// Without the characters of `characters` (white space by default) at its left and right end.
MarkedText stripped(const MarkedText& text, std::optional<std::string_view> characters, bool left,
                    bool right);
/// str.split with a separator, at most `limit` times (-1 for no limit); `from_right` for rsplit.
std::vector<MarkedText> split_at(const MarkedText& text, std::string_view separator, std::int64_t limit,
                                 bool from_right);
/// str.split at white space.
std::vector<MarkedText> split_words(const MarkedText& text, std::int64_t limit, bool from_right);
std::vector<MarkedText> split_lines(const MarkedText& text, bool keep_ends);
MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, std::int64_t limit);
MarkedText upper_case(const MarkedText& text);
MarkedText lower_case(const MarkedText& text);
MarkedText swapped_case(const MarkedText& text);
/// str.capitalize; str.title; the title filter, which begins words after white space and brackets only.
MarkedText capitalized(const MarkedText& text);
MarkedText title_case(const MarkedText& text);
MarkedText title_words(const MarkedText& text);
/// To `width` characters, by `fill` on the left and right as the share of it says: 0, 1 or 2 (centred).
MarkedText padded(const MarkedText& text, std::int64_t left, std::int64_t right, std::string_view fill);

}  // namespace lorikeet::text::jinja
