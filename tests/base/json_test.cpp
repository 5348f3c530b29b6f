#include "base/json.h"

#include "base/error.h"
#include "support/catch.h"

using lorikeet::Error;
using lorikeet::Json;
using lorikeet::JsonLimits;
using lorikeet::JsonView;

namespace {

std::string message_of(const std::string& text) {
  try {
    Json::parse(text, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("json keeps kinds, order and values") {
  const Json json = Json::parse(R"({"b": 1, "a": [true, null, -2.5, "x\u00e9"], "c": {"d": 1e3}})", "t");
  REQUIRE(json.object().size() == 3);
  CHECK(json.object()[0].first == "b");
  CHECK(json.find("b")->integer() == 1);
  CHECK(json.find("a")->array()[0].boolean());
  CHECK(json.find("a")->array()[1].is_null());
  CHECK(json.find("a")->array()[2].number() == -2.5);
  CHECK(json.find("a")->array()[3].string() == "x\xC3\xA9");
  CHECK_FALSE(json.find("c")->find("d")->is_integer());
}

TEST_CASE("json dump reads back equal") {
  const std::string text = R"({"a":[1,2.5,1e-08,"q\"\\\n"],"b":{},"c":[],"d":3.0})";
  CHECK(Json::parse(text, "t").dump() == text);
  CHECK(Json::parse(Json::parse(text, "t").dump(2), "t").dump() == text);
}

TEST_CASE("json refuses what is not JSON, with line and column") {
  CHECK_THAT(message_of("{\"a\": 1,\n \"b\": }"), Catch::Contains("[x.json]") && Catch::Contains("line 2"));
  for (const char* bad :
       {"", "{", "[1,]", "nul", "{\"a\":1} x", "NaN", "[Infinity]", "\"\xff\"", "'a'", "[01]"}) {
    CAPTURE(bad);
    CHECK_FALSE(message_of(bad).empty());
  }
}

TEST_CASE("json refuses NUL bytes, which would otherwise end the text unseen") {
  for (const std::string& text : {std::string("{\"a\": 1}\0{\"a\": 2}", 17), std::string("[1]\0", 4),
                                  std::string("\"a\0b\"", 5), std::string("1\0", 2)}) {
    CAPTURE(text.size());
    CHECK_FALSE(message_of(text).empty());
  }
  CHECK_THAT(message_of(std::string("{\"a\":\n1}\0", 9)),
             Catch::Contains("line 2, column 3") && Catch::Contains("a NUL byte"));
}

TEST_CASE("json refuses duplicate keys at any level") {
  CHECK_THAT(message_of(R"({"a":1,"b":{"x":1,"x":2}})"), Catch::Contains("duplicate key 'x'"));
  CHECK(message_of(R"({"a":{"x":1},"b":{"x":2}})").empty());
}

TEST_CASE("json depth is limited without recursion on the input") {
  CHECK(message_of(std::string(64, '[') + std::string(64, ']')).empty());
  CHECK_THAT(message_of(std::string(1000000, '[')), Catch::Contains("deeper than 64"));
}

TEST_CASE("json size is limited") {
  CHECK_THROWS_AS(Json::parse("[1,2,3]", "t", {.max_depth = 4, .max_bytes = 6}), Error);
}

TEST_CASE("json values are limited in number, at all levels together") {
  const std::string five = R"({"a": [1, {}], "b": null})";
  CHECK_NOTHROW(Json::parse(five, "t", {.max_values = 5}));
  CHECK_THROWS_WITH(Json::parse(five, "t", {.max_values = 4}), Catch::Contains("more than 4 values"));

  std::string tiny = "[0";
  while (tiny.size() < 3 * JsonLimits{}.max_values) tiny += ",[]";
  CHECK_THAT(message_of(tiny + "]"), Catch::Contains("values"));
}

TEST_CASE("json integers beyond 64 bits become doubles") {
  CHECK(Json::parse("9223372036854775807", "t").is_integer());
  CHECK_FALSE(Json::parse("9223372036854775808", "t").is_integer());
}

TEST_CASE("json view names file, path, expectation and finding") {
  const Json json = Json::parse(R"({"rope": {"factor": "8"}, "n": 2.0})", "t");
  const JsonView view(json, "config.json");
  CHECK(view.get_int("n", 0) == 2);
  CHECK(view.get_int("absent", 7) == 7);
  CHECK_THROWS_WITH(view.at("rope").get_number("factor", 1.0),
                    "[config.json: rope: factor] expected a number, got \"8\"");
  CHECK_THROWS_WITH(view.at("rope").as_int(),
                    "[config.json: rope] expected an integer, got {\"factor\":\"8\"}");
  const Json text = std::string(1000, 'x');
  CHECK(text.brief() == "\"" + std::string(59, 'x') + "...");
  CHECK_THROWS_WITH(view.at("nope"), "[config.json] key 'nope' is missing");
}
