#include "support.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;
using test::error_of;
using test::parse;

TEST_CASE("overrides are applied over the file, the last one wins") {
  const Settings s = parse("lora: {rank: 4}", {"lora.rank=8", "lora.rank=12", "optimizer.betas=[0.5, 0.6]",
                                               "data.validation.fraction=0.2", "device=cpu"});
  CHECK(s.lora.rank == 12);
  CHECK(s.optimizer.betas[0] == 0.5);
  CHECK(s.data.validation.fraction == 0.2);
  CHECK(s.device.kind == DeviceSetting::Kind::kCpu);
}

TEST_CASE("a value may contain an equals sign, and any text can be made into an override") {
  CHECK(parse("", {"data.train.path=a=b.jsonl"}).data.train.path == "a=b.jsonl");
  const std::string odd = "a: b #c [\"\\\n'\t\x01 \xC3\xA9";
  CHECK(parse("", {make_override("data.train.path", odd)}).data.train.path == odd);
  CHECK(parse("", {make_override("data.train.path", "null")}).data.train.path == "null");
}

TEST_CASE("a tilde drops a field or a section back to its default") {
  const Settings s = parse("lora: {rank: 4, alpha: 4}\ntraining: {seed: 1}", {"~lora.rank", "~training"});
  CHECK(s.lora.rank == 16);
  CHECK(s.lora.alpha == 4);
  CHECK(s.training.seed == 42);
  CHECK(parse("", {"~lora.rank"}).lora.rank == 16);
  CHECK(parse("batch: {global: 8}", {"batch.global_tokens=64", "~batch.global"}).batch.global_tokens == 64);
  CHECK_THROWS_WITH(parse("", {"~model.path"}), Contains("model.path is required"));
}

TEST_CASE("a single entry of a map can be set and dropped") {
  const std::string file = "data: {train: {columns: {prompt: a, completion: b}}}";
  const Settings s = parse(file, {"data.train.columns.prompt=question", "~data.train.columns.completion"});
  CHECK(s.data.train.columns == std::map<std::string, std::string>{{"prompt", "question"}});
}

TEST_CASE("wrong overrides are reported together with the file's problems") {
  const std::string text =
      error_of("lora: {rnak: 8}", {"lora.alpah=3", "lora.rank=x", "rank=3", "lora=3", "lora.rank",
                                   "~lora.rank=8", "~lora.x", "data.trian.path=1", "lora.rank='8", "=3"});
  CHECK_THAT(text, Contains("11 problems"));
  CHECK_THAT(text, Contains("unknown key 'lora.alpah' (did you mean 'lora.alpha'?)"));
  CHECK_THAT(text, Contains("override 'lora.rank': lora.rank: expected an integer"));
  CHECK_THAT(text, Contains("unknown key 'rank' (did you mean 'lora.rank'?)"));
  CHECK_THAT(text, Contains("'lora' is a section; set its fields one by one: lora.rank=..."));
  CHECK_THAT(text, Contains("override 'lora.rank': expected name=value or ~name"));
  CHECK_THAT(text, Contains("override '~lora.rank=8': expected ~name without a value"));
  CHECK_THAT(text, Contains("unknown key 'data.trian.path' (did you mean 'data.train.path'?)"));
  CHECK_THAT(text, Contains("not valid YAML"));
  CHECK_THAT(text, Contains("run.yaml:2: unknown key 'lora.rnak'"));
}

TEST_CASE("an override that is not UTF-8 is an error, in its name too") {
  CHECK_THAT(error_of("", {"data.train.columns.a\xe3=b"}), Contains("expected UTF-8 text"));
  CHECK_THAT(error_of("", {"data.train.path=\xe3"}), Contains("expected UTF-8 text"));
}

TEST_CASE("an override gives way for a section that the file wrote wrongly") {
  CHECK(parse("lora:\n", {"lora.rank=8"}).lora.rank == 8);
}
