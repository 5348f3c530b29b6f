#include "base/strings.h"

#include "base/counted.h"
#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("edit distance counts insertions, deletions and substitutions") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("did you mean suggests near words only") {
  CHECK(did_you_mean("epoch", {"epochs", "seed"}) == " (did you mean 'epochs'?)");
  CHECK(did_you_mean("zzzzzz", {"epochs", "seed"}).empty());
}

TEST_CASE("escape_control leaves text and escapes what drives a terminal") {
  CHECK(escape_control("a\tb\nc \xC3\xA9") == "a\tb\nc \xC3\xA9");
  CHECK(escape_control("\x1b[31m\x7f") == "\\x1b[31m\\x7f");
  CHECK(escape_control("\xC2\x9b"
                       "1m") ==
        "\\x9b"
        "1m");
  CHECK(escape_control("\xff") == "\\xff");
}

TEST_CASE("utf-8 check refuses overlong forms, surrogates and what lies beyond U+10FFFF") {
  CHECK(is_utf8("h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82"));
  for (const char* bad :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80"}) {
    CHECK_FALSE(is_utf8(bad));
  }
  CHECK(find_invalid_utf8("ab\xff") == 2);
}

TEST_CASE("numbers are formatted for people") {
  CHECK(format_number("%.2f ms", 1.005e2) == "100.50 ms");
  const std::string words(100, 'x');
  CHECK(format_number((words + " %g " + words).c_str(), 2) == words + " 2 " + words);
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(std::uint64_t{3} << 29) == "1.5 GiB");
  CHECK(format_seconds(12.34) == "12.3 s");
  CHECK(format_seconds(200) == "3 min 20 s");
  CHECK(format_seconds(3720) == "1 h 02 min");
}

TEST_CASE("split keeps empty parts and join is its inverse") {
  CHECK(split("a,,b", ',') == std::vector<std::string>{"a", "", "b"});
  CHECK(join(split("a,,b", ','), ",") == "a,,b");
  CHECK(join_some({"a", "b"}, 2) == "a, b");
  CHECK(join_some({"a", "b", "c", "d"}, 2) == "a, b and 2 more");
  CHECK(join_some({}, 2).empty());
  CHECK(trim("  x \n") == "x");
}

TEST_CASE("lower case is taken of ASCII letters only") {
  CHECK(ascii_lower("GPU-1aF [\xC3\x84@Z`{") == "gpu-1af [\xC3\x84@z`{");
}

TEST_CASE("a count's noun is in singular for one alone") {
  CHECK(counted(0, "row") == "0 rows");
  CHECK(counted(1, "row") == "1 row");
  CHECK(counted(std::size_t{12}, "row") == "12 rows");
  CHECK(counted(1, "copy", "copies") == "1 copy");
  CHECK(counted(2, "copy", "copies") == "2 copies");
}
