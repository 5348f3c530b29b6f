#include "models/bare_floats.h"

#include "base/file.h"
#include "models/registry.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::test;
using Catch::Contains;

TEST_CASE("numbers that Python writes as bare words become objects, and nothing else changes") {
  const auto named = [](const char* text) { return models::name_bare_floats(text); };
  CHECK(named(R"({"a": [0.0, Infinity]})") == R"({"a": [0.0, {"__float__": "Infinity"}]})");
  CHECK(named(R"({"a": -Infinity,"b":NaN})") ==
        R"({"a": {"__float__": "-Infinity"},"b":{"__float__": "NaN"}})");
  CHECK(named("Infinity") == R"({"__float__": "Infinity"})");
  for (const char* same : {R"({"Infinity": "NaN, -Infinity"})", R"({"a": "\"Infinity\\"})", R"(["\\", 1])",
                           "[Infinityx, xInfinity, NaNa, 1NaN]", "", "\"", "\"\\"}) {
    CHECK(named(same) == same);
  }
  CHECK(named(R"(["\\", NaN])") == R"(["\\", {"__float__": "NaN"}])");
}

TEST_CASE("a config.json with Infinity is read; a word that isn't a number is an error") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    write_file_atomic(folder / "config.json", text);
    return models::read_config_json(folder.path());
  };
  const Json limits = read(R"({"time_step_limit": [0.0, Infinity]})");
  CHECK(limits.find("time_step_limit")->dump() == R"([0.0,{"__float__":"Infinity"}])");
  CHECK_THAT(error_text([&] { read(R"({"a": infinity})"); }), Contains("config.json"));
}
