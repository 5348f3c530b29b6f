#pragma once

#include <string>
#include <string_view>

namespace lorikeet::text {

/// The characters of Unicode's \w (UTS #18, annex C), as the inside of a PCRE2 character class. What
/// Oniguruma has as [\w] and [[:word:]].
inline constexpr std::string_view kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

/// Rewrites a pattern of a tokenizer.json, which is meant for Oniguruma with Ruby's syntax, to one that means
/// the same to PCRE2 with UTF, UCP and MULTILINE:
///   \s and \S   White_Space (PCRE2 adds U+180E)
///   \w \W \b \B by alphabetic, mark, digit and connector (PCRE2 leaves marks out), and outside of a class
///               by Latin-1's superscript digits and fractions too
///   [[:alpha:]] and its like as Unicode's properties (PCRE2: some others)
///   \h and \H   hexadecimal digits (PCRE2: horizontal space)
///   \uHHHH      a code point
///   (?m)        a dot that matches line ends too (PCRE2: (?s))
/// Throws Error starting with "[where]" for what has no equal form: a class inside a class, the class
/// operator &&, negated and rare POSIX brackets, and {n,m}+, which Ruby reads as a repeated repeat.
std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace lorikeet::text
