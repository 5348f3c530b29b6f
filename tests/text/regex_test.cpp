#include "text/regex.h"

#include "base/error.h"
#include "support/catch.h"
#include "text/regex_syntax.h"
#include "text/unicode.h"

namespace {

using lorikeet::text::Regex;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  Regex::from_oniguruma(pattern, "test").for_each_match(text, [&](std::size_t begin, std::size_t end) {
    found.push_back(text.substr(begin, end - begin));
  });
  return found;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("patterns mean what they mean to Oniguruma") {
  CHECK(matches(R"(\s)", "a\u180e\u00a0b") == Strings{"\u00a0"});  // U+180E is no white space
  CHECK(matches(R"([^\S])", "a\u180e b") == Strings{" "});
  CHECK(matches(R"(\w+)", "e\u0301a-b") == Strings{"e\u0301a", "b"});  // a mark belongs to its word
  CHECK(matches(R"(\bb)", "ab b") == Strings{"b"});
  CHECK(matches(R"(\h+)", "g1fA \t") == Strings{"1fA"});
  CHECK(matches(R"(\u0041[\u0042])", "AB") == Strings{"AB"});
  CHECK(matches("a.b", "a\nb").empty());
  CHECK(matches("(?m:a.b)", "a\nb") == Strings{"a\nb"});
  CHECK(matches("^b", "a\nb") == Strings{"b"});
  CHECK(matches("[]a]+", "]a") == Strings{"]a"});
  // Latin-1's superscripts and fractions are word characters, but not in a class; others aren't at all.
  CHECK(matches(R"(\w)", "²①½") == Strings{"²", "½"});
  CHECK(matches(R"(\W)", "²①½") == Strings{"①"});
  CHECK(matches(R"([\w])", "²①½").empty());
  CHECK(matches(R"([^\w])", "²①½").size() == 3);
  CHECK(matches(R"(a\b)", "a a² a① aa") == Strings{"a", "a", "a"});
  CHECK(matches(R"(a\B)", "a a² a① ab") == Strings{"a", "a"});
  CHECK(matches(R"(\d{1,3}(?=(?:\d{3})*\b))", "1000² 1000①") == Strings{"1", "000"});
  CHECK(matches("[[:alpha:]]+", "aé\u0301東1_") == Strings{"aé", "東"});
  CHECK(matches("[[:alnum:]]+", "aé1²_") == Strings{"aé1"});
  CHECK(matches("[[:digit:]]+", "1٣²") == Strings{"1٣"});
  CHECK(matches("[[:punct:]]+", "!$+©_a") == Strings{"!$+©_"});
  CHECK(matches("[[:space:]]+", "a\u180e \u00a0\u2028b") == Strings{" \u00a0\u2028"});
  CHECK(matches("[[:word:]]+", "ae\u0301²") == Strings{"ae\u0301"});
  CHECK(matches("[[:upper:]]", "aÉǅⅧ") == Strings{"É", "Ⅷ"});
  CHECK(matches("[[:lower:]]", "Aéª") == Strings{"é", "ª"});
  CHECK(matches("[[:xdigit:]]+", "1fＦg") == Strings{"1f"});
  CHECK(matches("[^[:punct:] x]+", "ab,cx") == Strings{"ab", "c"});
  CHECK(matches(R"(\p{N}{1,3})", "12345") == Strings{"123", "45"});
}

TEST_CASE("an empty match directly behind another doesn't count") {
  CHECK(matches("x*", "xa") == Strings{"x", ""});
  CHECK(matches("x*", "é") == Strings{"", ""});
}

TEST_CASE("what has no equal form in PCRE2 is refused") {
  for (const char* pattern : {"[a&&b]", "[a[b]]", R"([\W])", R"([\H])", "[[:cntrl:]]", "[[:^alpha:]]",
                              "(?i)[[:upper:]]", "a{1,2}+", R"(\p{)", R"(\u00)"}) {
    INFO(pattern);
    CHECK_THROWS_WITH(Regex::from_oniguruma(pattern, "file"),
                      Catch::Contains("[file]") && Catch::Contains("not supported"));
  }
  CHECK_THROWS_AS(Regex("(*NO_JIT)a", "file"), lorikeet::Error);
}

TEST_CASE("the runs taken for unchanged by NFC are so") {
  // Every pair of neighbours from the fast path's runs would be too many: each character alone, and behind a
  // few others, must be as the general algorithm leaves it.
  using lorikeet::text::NormalForm;
  for (char32_t c = 1; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    for (const char* before : {"a", "\uac00", "\u0439"}) {
      std::string fast = before;
      lorikeet::text::append_utf8(fast, c);
      // A letter in front that is in none of the runs makes the general algorithm run.
      std::string slow = "\u1E00 " + fast;
      normalize(fast, NormalForm::kNFC);
      normalize(slow, NormalForm::kNFC);
      if ("\u1E00 " + fast != slow) {
        FAIL("U+" << std::hex << static_cast<unsigned>(c) << " behind '" << before << "'");
      }
    }
  }
}

TEST_CASE("ill-formed bytes become one replacement a maximal part") {
  using lorikeet::text::to_utf8_lossy;
  CHECK(to_utf8_lossy("a\xC3") == "a\uFFFD");
  CHECK(to_utf8_lossy("\xE2\x82z") == "\uFFFDz");
  CHECK(to_utf8_lossy("\xF0\x9F\x98\xC3\xA9") == "\uFFFDé");
  CHECK(to_utf8_lossy("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // a surrogate
  CHECK(to_utf8_lossy("\xC0\x80") == "\uFFFD\uFFFD");
}
