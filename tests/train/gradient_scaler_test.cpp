#include "train/gradient_scaler.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

GradientScaler read(const std::string& text) {
  const Json json = Json::parse(text, "state");
  return GradientScaler::from_json(JsonView(json, "state"));
}

}  // namespace

TEST_CASE("an overflow halves the factor and is counted, and 2,000 good steps in a row double it") {
  GradientScaler scaler;
  CHECK(scaler.scale() == 65536);
  CHECK(scaler.update(false));
  CHECK(scaler.update(false));
  CHECK(scaler.scale() == 16384);
  CHECK(scaler.skipped() == 2);
  for (int i = 0; i < 1999; ++i) CHECK(scaler.update(true));
  CHECK(scaler.scale() == 16384);
  CHECK(scaler.update(false));  // begins the count anew
  CHECK(scaler.scale() == 8192);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK(scaler.scale() == 8192);
  scaler.update(true);
  CHECK(scaler.scale() == 16384);
  CHECK(scaler.skipped() == 3);
}

TEST_CASE("the factor has a ceiling, and at 1 an overflow is no longer the scaler's") {
  GradientScaler scaler = read(R"({"scale": 16777216, "good_steps": 1999, "skipped": 0})");
  CHECK(scaler.update(true));
  CHECK(scaler.scale() == 16777216);
  for (int i = 0; i < 24; ++i) CHECK(scaler.update(false));
  CHECK(scaler.scale() == 1);
  CHECK_FALSE(scaler.update(false));
  CHECK(scaler.skipped() == 24);
}

TEST_CASE("its state comes back from a checkpoint as it was, and nothing else does") {
  GradientScaler scaler;
  scaler.update(false);
  for (int i = 0; i < 7; ++i) scaler.update(true);
  CHECK(read(scaler.json().dump()) == scaler);
  const auto [text, key] = GENERATE(table<std::string, std::string>({
      {R"({"scale": 3, "good_steps": 0, "skipped": 0})", "scale"},
      {R"({"scale": 0.5, "good_steps": 0, "skipped": 0})", "scale"},
      {R"({"scale": 1e300, "good_steps": 0, "skipped": 0})", "scale"},
      {R"({"scale": 2, "good_steps": 2000, "skipped": 0})", "good_steps"},
      {R"({"scale": 2, "good_steps": 0, "skipped": -1})", "skipped"},
  }));
  CHECK_THAT(error_text([&text = text] { read(text); }), Contains(key));
}
