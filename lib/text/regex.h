#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace lorikeet::text {

/// A compiled regular expression (PCRE2 with UTF, UCP, MULTILINE and JIT). Immutable; any number of threads
/// may match at once. Matching is bounded: a pattern that runs away is an Error, not a hang.
class Regex {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  /// Compiles a pattern in PCRE2's own syntax. Throws Error starting with "[where]" if it doesn't compile.
  Regex(std::string_view pattern, const std::string& where);
  /// Compiles a pattern of a tokenizer.json (see oniguruma_to_pcre2).
  static Regex from_oniguruma(std::string_view pattern, const std::string& where);

  /// The first match that begins at or after byte `from` of `text` (well-formed UTF-8). Throws Error when
  /// PCRE2's match, heap or JIT stack limit is hit.
  std::optional<Match> search(std::string_view text, std::size_t from) const;

  /// Calls `visit(begin, end)` for the matches from left to right. They don't overlap, and an empty one
  /// directly behind another match doesn't count (as Oniguruma's Rust binding has it).
  template <class Visit>
  void for_each_match(std::string_view text, Visit&& visit) const {
    std::size_t from = 0;
    std::optional<std::size_t> last_end;
    while (from <= text.size()) {
      const std::optional<Match> match = search(text, from);
      if (!match) return;
      if (match->begin == match->end && last_end == match->end) {
        from = next_character(text, from);
        continue;
      }
      from = match->end;
      last_end = match->end;
      visit(match->begin, match->end);
    }
  }

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  static std::size_t next_character(std::string_view text, std::size_t at);

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string pattern_;
  std::string where_;
  bool jit_ = false;
};

/// True for a text with a character that means something else in a regular expression than in a name: one of
/// * + ? ( ) [ ] { } | ^ $ and the backslash (a dot is in names too).
bool has_regex_syntax(std::string_view text);

}  // namespace lorikeet::text
