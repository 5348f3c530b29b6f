#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet {

/// Levenshtein distance in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, if near enough to be what was meant (at most a third of its length,
/// at least two edits allowed for words of four bytes or more).
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// " (did you mean 'x'?)" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// `text` with control characters (C0 but tab and newline, DEL, C1) written as \xNN, so that printing it
/// can't drive a terminal. Bytes that are not UTF-8 are escaped too.
std::string escape_control(std::string_view text);

/// True if all of `text` is well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool is_utf8(std::string_view text);

/// Offset of the first byte that is not well-formed UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// `value` by a pattern of printf with one conversion of a double, "%.1f ms".
[[gnu::format(printf, 1, 0)]] std::string format_number(const char* pattern, double value);

/// "1.4 GiB", "512 B".
std::string format_bytes(std::uint64_t bytes);

/// "1 h 02 min", "3 min 20 s", "12.3 s".
std::string format_seconds(double seconds);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// "a, b and 3 more": the first `most` parts, and how many follow.
std::string join_some(const std::vector<std::string>& parts, std::size_t most);
std::string trim(std::string_view text);
/// True if nothing is left of `text` when it is trimmed.
bool is_blank(std::string_view text);

/// Letters A to Z as a to z, all else as it is.
std::string ascii_lower(std::string_view text);

}  // namespace lorikeet
