// data.train as one source with its settings, and as a list of sources.
#include "support.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;
using lorikeet::test::error_of;
using lorikeet::test::parse;

TEST_CASE("data.train as a list of sources reads each like data.train itself") {
  const Settings s = parse(
      "data:\n"
      "  train:\n"
      "    - {path: a.jsonl, weight: 2, columns: {prompt: q}}\n"
      "    - {path: b, split: test, limit: 10, format: chat, where: {min_tokens: 3}}\n");
  REQUIRE(s.data.train.sources.size() == 2);
  CHECK(s.data.train.sources[0].weight == 2);
  CHECK(s.data.train.sources[0].columns.at("prompt") == "q");
  CHECK(s.data.train.sources[1].split == "test");
  CHECK(s.data.train.sources[1].limit == 10);
  CHECK(s.data.train.sources[1].format == DataFormat::kChat);
  CHECK(s.data.train.sources[1].where.min_tokens == 3);
}

TEST_CASE("a list of sources is printed so that it reads back the same") {
  const Settings s =
      parse("data: {train: [{path: a b, prompt: '{q}: ', where: {max_tokens: 9}}, {path: c, weight: 0.5}]}");
  const Settings again = parse_settings(to_yaml(s), "again.yaml", {});
  CHECK(again.data.train.sources == s.data.train.sources);
  CHECK(
      parse("", {"data.train.sources=[{path: a}, {path: b, preset: dolly}]"}).data.train.sources[1].preset ==
      "dolly");
}

TEST_CASE("a path on the command line takes the place of the file's list") {
  const Settings s = parse("data: {train: [{path: a}, {path: b}]}", {"data.train.path=c"});
  CHECK(s.data.train.path == "c");
  CHECK(s.data.train.sources.empty());
}

TEST_CASE("an override beside the file's list leaves its sources in place") {
  const std::string file = "data: {train: [{path: a, weight: 1}, {path: b, weight: 3}]}";
  const Settings s = parse(file, {"data.train.mix_by=tokens", "data.train.stopping_strategy=all_exhausted"});
  REQUIRE(s.data.train.sources.size() == 2);
  CHECK(s.data.train.sources[1].weight == 3);
  CHECK(s.data.train.mix_by == MixBy::kTokens);
  CHECK(s.data.train.stopping_strategy == StoppingStrategy::kAllExhausted);
  CHECK_THAT(error_of(file, {"data.train.limit=5"}), Contains("in each entry of sources"));
  CHECK(parse(file, {"~data.train.sources"}).data.train.sources.empty());
  CHECK(parse(file, {"data.train.sources=[{path: c}]"}).data.train.sources[0].path == "c");
}

TEST_CASE("the section where of a source may be empty, but no value") {
  CHECK(parse("data: {train: [{path: a, where: }]}").data.train.sources.size() == 1);
  CHECK_THAT(error_of("data: {train: [{path: a, where: 3}]}"),
             Contains("'where' (run.yaml:2): expected a mapping, got '3'"));
}

TEST_CASE("sources with unknown or wrong settings are errors that name them") {
  CHECK_THAT(error_of("data: {train: [{path: a, wieght: 2}]}"),
             Contains("data.train.sources") && Contains("'wieght'") && Contains("did you mean"));
  CHECK_THAT(error_of("data: {train: [{path: a, limit: 0}]}"), Contains("'limit'") && Contains("at least 1"));
  CHECK_THAT(error_of("data: {train: [{format: chat}]}"), Contains("have a path"));
  CHECK_THAT(error_of("data: {train: [{path: a, where: {min_token: 2}}]}"), Contains("'where.min_token'"));
  CHECK_THAT(error_of("data: {train: [{path: a, where.min_tokens: 2}]}"),
             Contains("nested keys, as in where: {min_tokens: ...}"));
  CHECK_THAT(error_of("data: {train: [{path: a, sources: []}]}"), Contains("'sources'"));
  CHECK_THAT(error_of("data: {train: [a.jsonl]}"), Contains("a list of mappings"));
}

TEST_CASE("settings of a source that contradict each other are errors") {
  CHECK_THAT(error_of("data: {train: {weight: 2}}"), Contains("data.train.weight"));
  CHECK_THAT(error_of("data: {train: {path: a, sources: [{path: b}]}}"), Contains("at most one"));
  CHECK_THAT(error_of("data: {train: {limit: 3, sources: [{path: b}]}}"), Contains("in each entry"));
  for (const char* mixing : {"mix_by: tokens", "stopping_strategy: all_exhausted"}) {
    const std::string section = std::string("data: {train: {") + mixing + ", sources: [{path: b";
    CHECK_THAT(error_of(section + "}]}}"), Contains("have no effect without a weight"));
    CHECK(error_of(section + ", weight: 2}]}}") == "no error");
  }
  CHECK_THAT(error_of("data: {train: {completion: '{a}'}}"), Contains("needs data.train.prompt"));
  CHECK_THAT(error_of("data: {train: {prompt: '{a}', format: chat}}"), Contains("data.train.prompt"));
  CHECK_THAT(error_of("data: {train: {preset: dolly, format: chat}}"), Contains("data.train.preset"));
  CHECK_THAT(error_of("data: {train: {where: {max_tokens: 2048}}}"), Contains("data.overlong"));
  CHECK_THAT(error_of("data: {train: [{path: a, where: {min_tokens: 9, max_tokens: 8}}]}"),
             Contains("min_tokens"));
  CHECK_THAT(error_of("data: {validation: {split: test}}"), Contains("needs data.validation.path"));
}
