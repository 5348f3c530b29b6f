#include "text/regex_syntax.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::text {
namespace {

constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";
// ² ³ ¹ ¼ ½ ¾: below U+0100 Oniguruma asks an older table, in which they are word characters.
constexpr std::string_view kLatin1Numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

struct PosixBracket {
  std::string_view name, set;
};
constexpr std::array<PosixBracket, 9> kPosixBrackets{{{"alpha", R"(\p{Alphabetic})"},
                                                      {"digit", R"(\p{Nd})"},
                                                      {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                                                      {"word", kWordClass},
                                                      {"space", kSpaces},
                                                      {"punct", R"(\p{P}\p{S})"},
                                                      {"upper", R"(\p{Uppercase})"},
                                                      {"lower", R"(\p{Lowercase})"},
                                                      {"xdigit", kHexDigits}}};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        group();
      } else if (c == '}' && repeat_end()) {
        if (at_ + 1 < in_.size() && in_[at_ + 1] == '+') unsupported("{n,m}+");
        take(1);
      } else {
        take(1);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void unsupported(const std::string& what) const {
    throw Error("[" + where_ + "] the pattern '" + escape_control(in_) + "' uses " + what +
                ", which is not supported");
  }

  void take(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void put(std::string_view replacement, std::size_t consumed) {
    out_ += replacement;
    at_ += consumed;
  }

  // A set of characters, either as a part of the class being read or as a class of its own.
  void put_set(std::string_view set, bool negated) {
    if (in_class_) {
      put(set, 2);
    } else {
      put("[" + std::string(negated ? "^" : "") + std::string(set) + "]", 2);
    }
  }

  void escape() {
    const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const std::string word = std::string(kWordClass) + std::string(in_class_ ? "" : kLatin1Numbers);
    switch (next) {
      case 's': put_set(kSpaces, false); return;
      case 'S': put_set(kNotSpaces, false); return;
      case 'w': put_set(word, false); return;
      case 'h': put_set(kHexDigits, false); return;
      case 'W':
        if (in_class_) unsupported("\\W inside a class");
        put_set(word, true);
        return;
      case 'H':
        if (in_class_) unsupported("\\H inside a class");
        put_set(kHexDigits, true);
        return;
      case 'b':
        if (in_class_) break;  // a backspace
        put("(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word + "]))", 2);
        return;
      case 'B':
        if (in_class_) break;
        put("(?:(?<=[" + word + "])(?=[" + word + "])|(?<![" + word + "])(?![" + word + "]))", 2);
        return;
      case 'u':
        if (at_ + 6 > in_.size()) unsupported("an unfinished \\u");
        put("\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}", 6);
        return;
      case 'p':
      case 'P':
        // Taken whole, so that its '}' isn't mistaken for the end of a repeat.
        if (at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
          const std::size_t end = in_.find('}', at_);
          if (end == std::string_view::npos) unsupported("an unfinished \\p{");
          take(end + 1 - at_);
          return;
        }
        break;
      case 'x':
        if (at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
          const std::size_t end = in_.find('}', at_);
          if (end == std::string_view::npos) unsupported("an unfinished \\x{");
          take(end + 1 - at_);
          return;
        }
        break;
      default: break;
    }
    take(2);
  }

  void open_class() {
    in_class_ = true;
    take(1);
    if (at_ < in_.size() && in_[at_] == '^') take(1);
    if (at_ < in_.size() && in_[at_] == ']') put("\\]", 1);  // first in a class, a bracket is itself
  }

  void class_character(char c) {
    if (c == ']') {
      in_class_ = false;
      take(1);
    } else if (c == '[') {
      if (in_.substr(at_, 2) != "[:") unsupported("a class inside a class");
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) unsupported("a class inside a class");
      posix_bracket(in_.substr(at_ + 2, end - at_ - 2));
    } else if (in_.substr(at_, 2) == "&&") {
      unsupported("the class operator &&");
    } else {
      take(1);
    }
  }

  void posix_bracket(std::string_view name) {
    const auto bracket = std::find_if(kPosixBrackets.begin(), kPosixBrackets.end(),
                                      [&](const PosixBracket& one) { return one.name == name; });
    const bool by_case = name == "upper" || name == "lower";
    if (bracket == kPosixBrackets.end() || (by_case && ignores_case_))
      unsupported("[:" + std::string(name) + ":]" + (by_case ? " with (?i)" : ""));
    put(bracket->set, name.size() + 4);
  }

  // "(?im-x" or "(?im-x:": Ruby's m is PCRE2's s.
  void group() {
    take(1);
    if (at_ >= in_.size() || in_[at_] != '?') return;
    std::size_t end = at_ + 1;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-')) {
      ++end;
    }
    if (end == at_ + 1 || end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) return;
    const std::string_view on = in_.substr(at_, std::min(in_.find('-', at_), end) - at_);
    if (on.find('i') != std::string_view::npos) ignores_case_ = true;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // True if the '}' at the current place ends a "{n}", "{n,}", "{,m}" or "{n,m}".
  bool repeat_end() const {
    std::size_t begin = at_;
    while (begin > 0 && (in_[begin - 1] == ',' || (in_[begin - 1] >= '0' && in_[begin - 1] <= '9'))) --begin;
    return begin < at_ && begin > 0 && in_[begin - 1] == '{';
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  bool ignores_case_ = false;  // somewhere so far
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace lorikeet::text
