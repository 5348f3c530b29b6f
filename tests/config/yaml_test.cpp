#include "config/yaml.h"

#include <chrono>

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;

namespace {

std::string repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("a YAML tree knows kinds, quoting and places") {
  const YamlNode root = parse_yaml("a: 1\nb:\n  - '2'\n  - null\n  -\nc: |\n  text\n", "f");
  REQUIRE(root.is_mapping());
  CHECK(root.find("a")->text == "1");
  CHECK_FALSE(root.find("a")->quoted);
  CHECK(root.find("a")->place == "f:1");
  const YamlNode* list = root.find("b");
  REQUIRE(list->items.size() == 3);
  CHECK(list->items[0].quoted);
  CHECK(list->items[1].is_null());
  CHECK(list->items[2].is_null());
  CHECK(root.find("c")->quoted);
  CHECK(root.find("c")->place == "f:6");
  CHECK(parse_yaml("", "f").is_null());
  CHECK(parse_yaml("# only a comment\n", "f").is_null());
}

TEST_CASE("YAML that could do harm or hides a mistake is refused with its line") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"a: 1\na: 2\n", "f:2: the key 'a' stands twice (first at f:1)"},
      {"a: {b: 1, b: 2}\n", "the key 'b' stands twice"},
      {"a: &x 1\nb: *x\n", "f:2: aliases"},
      {"a: !!python/object 1\n", "f:1: tags"},
      {"a: !mine {}\n", "f:1: tags"},
      {"? [a]\n: 1\n", "a key has to be a plain name"},
      {"a: 1\n---\nb: 2\n", "f:2: expected one YAML document, got a second after '---'"},
      {"{a: 1}\n{a: 2}\n", "f:2: expected one YAML value, got more after its end"},
      {"a: 1\n\tb: 2\n", "not valid YAML"},
      {"a:\n\tb: 2\n", "here is a tab"},
      {"a: [1, 2\n", "not valid YAML"},
      {"a: 1\nb: \xff\n", "f:2: expected UTF-8"},
      {std::string("a: 1\0", 5), "f:1: expected UTF-8"},
      {std::string("\xff\xfe", 2) + std::string("a\0:\0", 4), "expected UTF-8"},
      {repeat("[", 40) + repeat("]", 40), "nested deeper than 16"},
      {repeat("{a: ", 40) + repeat("}", 40), "nested deeper than 16"},
      {repeat("- ", 40), "nested deeper than 16"},
      {"[" + repeat("1,", 30000) + "]", "more than 20000 values"},
      {repeat("#", (1 << 20) + 1), "bytes, at most 1048576"},
  }));
  INFO(text.substr(0, 60));
  CHECK_THROWS_WITH(parse_yaml(text, "f"), Contains(message));
}

TEST_CASE("a quote that is never closed is refused with its line, however the file ends") {
  const auto start =
      GENERATE(as<std::string>{}, "b: \"it's", "b: 'say \"x\" ''", "b: {c: 1, d: \"\\\"", "b: [1, 'x", "\"b");
  const auto end =
      GENERATE(as<std::string>{}, "", "\n", "\r\n", "\nc: 1\n", "\nc: 1\n\n", "\n  \t", "\n# c\n");
  const auto before = GENERATE(as<std::string>{}, "a: 1\n", "\xEF\xBB\xBF\"a\": '\xC3\xA9'\r\n", "a: |\n");
  INFO(before << start << end);
  const std::string line = start == "\"b" ? "f:1" : "f:2";  // it may be any after the last value
  CHECK_THROWS_WITH(parse_yaml(before + start + end, "f"),
                    Contains(line + ": a quote that opens on this line or a later one is never closed"));
}

TEST_CASE("the end of a file is no part of its last value, and closed quotes may have many lines") {
  const auto last = [](const std::string& text) { return parse_yaml(text, "f").items.back().text; };
  for (const char* end : {"", "\n", "\r\n", "\n\n", "\n  \t", "\n# c\n"}) {
    INFO(end);
    CHECK(last(std::string("a: b") + end) == "b");
    CHECK(last(std::string("a: \"b\n  'c\"") + end) == "b 'c");
    CHECK(last(std::string("a: 'b\n  \"it''s\n'") + end) == "b \"it's ");
    CHECK(last(std::string("a: [b, c]\nd: \"x\\\"\"") + end) == "x\"");
  }
  CHECK(last("a: |\n  b #c\n") == "b #c\n");
  CHECK(last("a: |\n  b ") == "b ");
  CHECK(last("a: |+\n  b\n\n") == "b\n\n");
  CHECK(last("a: >\n  b\n  c\n") == "b c\n");
}

TEST_CASE("the largest hostile files are refused within seconds") {
  const std::string unit = GENERATE(as<std::string>{}, "[", "{", "- ", "? ", "a: ", "{a: ", "\"", "&a ", "! ",
                                    "*a ", "- a\n", "a\n", "  ", "|\n", "%\n", ",", "]");
  INFO(unit);
  const auto start = std::chrono::steady_clock::now();
  try {
    parse_yaml(repeat(unit, (std::size_t{1} << 20) / unit.size()), "f");
  } catch (const Error&) {
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  CHECK(elapsed.count() < 10);
}

TEST_CASE("any text survives quoting") {
  const std::string text = GENERATE(
      as<std::string>{}, "plain", "a/b-c_d.e", "", " a", "a ", "null", "Null", "~", "true", "no", "12", "-1",
      ".5", "1e3", "a: b", "a #b", "#", "[x]", "{x}", "*x", "&x", "!x", "'", "\"", "\\", "a\nb", "\t", "\x7f",
      "\xE2\x80\xA8", "\xF0\x9F\xA6\x9C", "%a", "@a", "`a", "-", "---", "? a", "a,b", "=", "<<");
  INFO(text);
  const YamlNode node = parse_yaml("[" + quote_yaml(text) + "]", "f");
  REQUIRE(node.items.size() == 1);
  REQUIRE(node.items[0].is_scalar());
  CHECK(node.items[0].text == text);
}

TEST_CASE("what is shown of a value can't drive a terminal") {
  CHECK(parse_yaml("\"\\e[31m\"", "f").describe() == "the text '\\x1b[31m'");
}
