#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/strings.h"
#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace lorikeet::text::jinja {
namespace {

bool is_digit_character(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

int hex_value(char c) {
  if (is_digit_character(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    tokens_.push_back({TokenKind::kEnd, "", source_.size()});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& problem) const {
    fail_at(source_, offset, problem);
  }
  bool sees(std::string_view text) const { return source_.substr(at_, text.size()) == text; }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void skip_space() {
    while (at_ < source_.size() && is_space_at(source_, at_)) at_ = next_character(source_, at_);
  }
  void data(std::string_view text, std::size_t offset) {
    if (!text.empty()) tokens_.push_back({TokenKind::kData, std::string(text), offset});
  }

  // Text up to a tag that starts at `tag` with the sign `sign`, cut as the tag asks for.
  std::string_view text_before(std::size_t tag, char sign, bool variable) const {
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty()) {
        std::size_t end = text.size();
        if (!is_space(previous_code_point(text, end))) break;
        text = text.substr(0, end);
      }
    } else if (sign != '+' && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if (line > 0 || line_starting_) {
        std::size_t at = line;
        while (at < text.size() && is_space_at(text, at)) at = next_character(text, at);
        if (at == text.size()) text = text.substr(0, line);
      }
    }
    return text;
  }

  void root() {
    std::size_t tag = at_;
    while (tag + 1 < source_.size() &&
           !(source_[tag] == '{' && std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos))
      ++tag;
    if (tag + 1 >= source_.size()) {
      data(source_.substr(at_), at_);
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    data(text_before(tag, sign, kind == '{'), at_);
    at_ = tag + (sign != '\0' ? 3 : 2);
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    tokens_.push_back({kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "", tag});
    inside(kind == '{', tag);
  }

  // Behind a tag's end "%}" or "#}": `sign` is the character before it.
  void finish_tag(std::size_t end, char sign) {
    at_ = end;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && peek() == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail(tag, "a comment isn't closed by #}");
    finish_tag(end + 2, end > at_ ? source_[end - 1] : '\0');
  }

  // A {% raw %} block, whose text is data; false if the tag is another.
  bool raw(std::size_t tag) {
    const std::size_t start = at_;
    skip_space();
    const auto back = [&] {
      at_ = start;
      return false;
    };
    if (!sees("raw")) return back();
    at_ += 3;
    skip_space();
    const bool strip = sees("-%}");
    if (!strip && !sees("%}")) return back();
    at_ += strip ? 3 : 2;
    if (strip) skip_space();
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t end = source_.find("{%", at_); end != std::string_view::npos;
         end = source_.find("{%", end + 1)) {
      std::size_t at = end + 2;
      const char sign =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
      if (sign != '\0') ++at;
      const auto skip = [&] {
        while (at < source_.size() && is_space_at(source_, at)) at = next_character(source_, at);
      };
      skip();
      if (source_.substr(at, 6) != "endraw") continue;
      at += 6;
      skip();
      const char closing =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
      if (closing != '\0') ++at;
      if (source_.substr(at, 2) != "%}") continue;
      data(text_before(end, sign, false), at_);
      finish_tag(at + 2, closing);
      return true;
    }
    fail(tag, "a raw block isn't closed by {% endraw %}");
  }

  void inside(bool variable, std::size_t tag) {
    const std::string_view closing = variable ? "}}" : "%}";
    std::string open;
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) fail(tag, std::string("a tag isn't closed by ") + std::string(closing));
      if (open.empty()) {
        const bool minus = peek() == '-' && source_.substr(at_ + 1, 2) == closing;
        const bool plus = !variable && peek() == '+' && source_.substr(at_ + 1, 2) == closing;
        if (minus || plus || sees(closing)) {
          tokens_.push_back({variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "", at_});
          const std::size_t end = at_ + (minus || plus ? 3 : 2);
          if (!variable) return finish_tag(end, minus ? '-' : plus ? '+' : '\0');
          at_ = end;
          if (minus) skip_space();
          line_starting_ = source_[at_ - 1] == '\n';
          return;
        }
      }
      const char c = peek();
      if (is_digit_character(c)) {
        number();
      } else if (starts_name(c)) {
        name();
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        operation(open);
      }
    }
  }

  void name() {
    const std::size_t begin = at_;
    while (at_ < source_.size() && (starts_name(peek()) || is_digit_character(peek()))) ++at_;
    tokens_.push_back({TokenKind::kName, std::string(source_.substr(begin, at_ - begin)), begin});
  }

  std::string digits() {
    std::string text;
    while (is_digit_character(peek()) || (peek() == '_' && is_digit_character(peek(1)))) {
      if (peek() != '_') text += peek();
      ++at_;
    }
    return text;
  }

  void number() {
    const std::size_t begin = at_;
    if (peek() == '0' && std::string_view("xXoObB").find(peek(1)) != std::string_view::npos &&
        peek(1) != '\0')
      fail(begin, "integers in other bases than ten aren't supported");
    std::string text = digits();
    bool fraction = false;
    // In "messages.0.1" each number is an index.
    const bool index = begin > 0 && source_[begin - 1] == '.';
    if (!index && peek() == '.' && is_digit_character(peek(1))) {
      ++at_;
      text += "." + digits();
      fraction = true;
    }
    const bool sign = peek(1) == '+' || peek(1) == '-';
    if (!index && (peek() == 'e' || peek() == 'E') && is_digit_character(peek(sign ? 2 : 1))) {
      text += 'e';
      ++at_;
      if (sign) text += source_[at_++];
      text += digits();
      fraction = true;
    }
    if (!fraction && text.size() > 1 && text.front() == '0' &&
        text.find_first_not_of('0') != std::string::npos)
      fail(begin, "an integer can't begin with 0");
    tokens_.push_back({fraction ? TokenKind::kFloat : TokenKind::kInteger, text, begin});
  }

  char32_t hex_escape(std::size_t begin, std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const int digit = hex_value(peek());
      if (digit < 0) fail(begin, "a string has an escape with too few hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail(begin, "a string has an escape of no character");
    return value;
  }

  void escape(std::string& out) {
    const std::size_t begin = at_++;
    const char c = peek();
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i)
        value = value * 8 + static_cast<char32_t>(source_[at_++] - '0');
      return append_utf8(out, value);
    }
    at_ = next_character(source_, at_);
    switch (c) {
      case '\n': return;
      case 'n': out += '\n'; return;
      case 't': out += '\t'; return;
      case 'r': out += '\r'; return;
      case 'a': out += '\a'; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'v': out += '\v'; return;
      case '\\':
      case '\'':
      case '"': out += c; return;
      case 'x': return append_utf8(out, hex_escape(begin, 2));
      case 'u': return append_utf8(out, hex_escape(begin, 4));
      case 'U': return append_utf8(out, hex_escape(begin, 8));
      case 'N': fail(begin, "escapes by a character's name aren't supported");
      default: out += source_.substr(begin, at_ - begin); return;
    }
  }

  void string() {
    const std::size_t begin = at_;
    const char quote = source_[at_++];
    std::string text;
    while (at_ < source_.size() && peek() != quote) {
      if (peek() == '\\' && at_ + 1 < source_.size()) {
        escape(text);
      } else {
        text += source_[at_++];
      }
    }
    if (at_ >= source_.size()) fail(begin, "a string isn't closed");
    ++at_;
    tokens_.push_back({TokenKind::kString, std::move(text), begin});
  }

  void operation(std::string& open) {
    static constexpr std::array<std::string_view, 6> kPairs{"//", "**", "==", "!=", ">=", "<="};
    const std::size_t begin = at_;
    std::string text(1, peek());
    for (const std::string_view pair : kPairs)
      if (sees(pair)) text = pair;
    if (text.size() == 1 && std::string_view("+-/*%~[](){}=><.:|,;").find(text) == std::string_view::npos)
      fail(begin, "unexpected character '" + escape_control(text) + "'");
    if (text == "(" || text == "[" || text == "{") {
      open += text == "(" ? ')' : text == "[" ? ']' : '}';
    } else if (text == ")" || text == "]" || text == "}") {
      if (open.empty()) fail(begin, "unexpected '" + text + "'");
      if (open.back() != text[0])
        fail(begin, "unexpected '" + text + "', expected '" + std::string(1, open.back()) + "'");
      open.pop_back();
    }
    at_ += text.size();
    tokens_.push_back({TokenKind::kOperator, std::move(text), begin});
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string place_of(std::string_view source, std::size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::string_view row = newline == std::string_view::npos ? before : before.substr(newline + 1);
  return "line " + std::to_string(line) + ", column " + std::to_string(count_characters(row) + 1);
}

void fail_at(std::string_view source, std::size_t offset, const std::string& problem) {
  throw Error("[chat_template] " + place_of(source, offset) + " of the template: " + escape_control(problem));
}

}  // namespace lorikeet::text::jinja
