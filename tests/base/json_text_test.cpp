#include "base/json_text.h"

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("a member's value is replaced and all else stays byte for byte") {
  CHECK(with_member(R"({"a": 1, "b" : [2, {"a": 3}] ,"c":1e31})", {"a"}, Json("x")) ==
        R"({"a": "x", "b" : [2, {"a": 3}] ,"c":1e31})");
  CHECK(with_member(R"({"long": 1000000000000000019884624838656, "t": "} \" ,"})", {"t"}, Json(2)) ==
        R"({"long": 1000000000000000019884624838656, "t": 2})");
}

TEST_CASE("a member that is absent comes last") {
  CHECK(with_member("{}", {"a"}, Json(true)) == "{\n  \"a\": true}");
  CHECK(with_member("{\"b\": {}\n}\n", {"a"}, Json(1)) == "{\"b\": {},\n  \"a\": 1\n}\n");
}

TEST_CASE("members inside others are set, and made where they are absent") {
  CHECK(with_member(R"({"a": {"b": 1, "c": 2}, "b": 0})", {"a", "c"}, Json(3)) ==
        R"({"a": {"b": 1, "c": 3}, "b": 0})");
  CHECK(Json::parse(with_member(R"({"a": null})", {"a", "b", "c"}, Json(3)), "test").dump() ==
        R"({"a":{"b":{"c":3}}})");
  CHECK_THROWS_AS(with_member(R"({"a": 1})", {"a", "b"}, Json(3)), Error);
  CHECK_THROWS_AS(with_member("[]", {"a"}, Json(3)), Error);
}

TEST_CASE("a member is taken out, wherever it stands, and all else stays byte for byte") {
  const std::string all = R"({"a": 1e31, "b" : {"c": ","} ,"c":[2] })";
  CHECK(without_member(all, "a") == R"({"b" : {"c": ","} ,"c":[2] })");
  CHECK(without_member(all, "b") == R"({"a": 1e31, "c":[2] })");
  CHECK(without_member(all, "c") == R"({"a": 1e31, "b" : {"c": ","} })");
  CHECK(without_member(all, "d") == all);
  CHECK(without_member(R"({ "a": 1 })", "a") == "{  }");
}

TEST_CASE("items are added behind those of a list") {
  const std::vector<Json> items{Json(3), Json("x")};
  CHECK(with_items(R"({"l": [1, [2]  ], "m": 0})", "l", items) == R"({"l": [1, [2], 3, "x"], "m": 0})");
  CHECK(with_items(R"({"l": [ ], "m": 0})", "l", items) == R"({"l": [3, "x"], "m": 0})");
  CHECK(with_items(R"({"l": null})", "l", items) == R"({"l": [3, "x"]})");
  CHECK(with_items("{}", "l", items) == "{\n  \"l\": [3, \"x\"]}");
  CHECK(with_items(R"({"l": [1]})", "l", {}) == R"({"l": [1]})");
}
