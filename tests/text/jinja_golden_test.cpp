// Small templates against what jinja2 rendered (make_jinja_goldens.py).
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "support/catch.h"
#include "support/paths.h"
#include "text/jinja/template.h"

using namespace lorikeet;
using namespace lorikeet::text::jinja;

TEST_CASE("small templates render byte for byte what jinja2 renders, and fail where it fails") {
  std::ifstream file(test::source_dir() / "tests" / "text" / "jinja_golden.jsonl");
  std::string line;
  REQUIRE(std::getline(file, line));
  const Json head = Json::parse(line, "jinja_golden.jsonl");
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [name, value] : head.find("variables")->object())
    variables.emplace_back(name, Value::from_json(value, kFromRow));
  std::size_t cases = 0;
  while (std::getline(file, line)) {
    const Json golden = Json::parse(line, "jinja_golden.jsonl");
    const std::string& source = golden.find("template")->string();
    CAPTURE(source);
    std::optional<std::string> text;
    std::string error;
    try {
      text = Template(source).render(variables).bytes();
    } catch (const Error& failure) {
      error = failure.what();
    }
    CAPTURE(error);
    const Json& expected = *golden.find("text");
    REQUIRE(text.has_value() == expected.is_string());
    if (text) CHECK(*text == expected.string());
    if (!text) CHECK(error.find("line ") != std::string::npos);
    ++cases;
  }
  CHECK(cases > 600);
}
