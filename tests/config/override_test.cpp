#include <array>
#include <cstdlib>

#include "config/schema.h"
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

TEST_CASE("an override of a text is that text, whatever YAML would make of it") {
  const auto prompt = [](const std::string& value) {
    return parse("", {"data.train.prompt=" + value, "data.train.completion=x"}).data.train.prompt;
  };
  for (const char* value : {"Translate: {english}", "{question}: {options}", "{question} Answer:", "[{q}]",
                            "- {q}", "\"{q}\" he said", "\"{a}\" means \"{b}\"", "'{a}' or '{b}'", "&{q}",
                            "{q} # no comment", "123", "true"})
    CHECK(prompt(value) == value);
  CHECK(prompt("'a: {q}'") == "a: {q}");
  CHECK(prompt("'it''s {q}'") == "it's {q}");
  CHECK(prompt("\"a \\\" {q}\"") == "a \" {q}");
  CHECK(prompt("\"a\\n{q}\"") == "a\n{q}");
  CHECK(parse("", {"data.train.path=*.parquet"}).data.train.path == "*.parquet");
  CHECK(parse("", {"data.train.path=a: b"}).data.train.path == "a: b");
  CHECK(parse("data: {validation: {path: v}}", {"data.validation.path=null"}).data.validation.path ==
        std::nullopt);
  CHECK(parse("data: {validation: {path: v}}", {"data.validation.path=~"}).data.validation.path ==
        std::nullopt);
}

TEST_CASE("an override has no comments, and braces without a colon are text") {
  CHECK(parse("", {"data.train.path=d/my data #2.jsonl"}).data.train.path == "d/my data #2.jsonl");
  CHECK(parse("", {"data.train.path='quoted #3'"}).data.train.path == "quoted #3");
  CHECK(parse("", {"data.train.prompt={q}", "data.train.completion={answer}"}).data.train.completion ==
        "{answer}");
  CHECK(parse("", {"data.train.columns={prompt: q}"}).data.train.columns.at("prompt") == "q");
  CHECK(parse("", {"lora.rank=8"}).lora.rank == 8);
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
  CHECK_THAT(text, Contains("never closed"));
  CHECK_THAT(text, Contains("run.yaml:2: unknown key 'lora.rnak'"));
}

TEST_CASE("an override that is not UTF-8 is an error, in its name too") {
  CHECK_THAT(error_of("", {"data.train.columns.a\xe3=b"}), Contains("expected UTF-8 text"));
  CHECK_THAT(error_of("", {"data.train.path=\xe3"}), Contains("expected UTF-8 text"));
}

TEST_CASE("an override gives way for a section that the file wrote wrongly") {
  CHECK(parse("lora:\n", {"lora.rank=8"}).lora.rank == 8);
}

TEST_CASE("a section or a map that the file wrote as a value stays an error beside an override") {
  CHECK_THAT(error_of("data: {train: rows.jsonl}", {"data.train.limit=5"}),
             Contains("run.yaml:2: data.train is a section") && Contains("got 'rows.jsonl'"));
  CHECK_THAT(error_of("lora: [8]", {"lora.rank=8"}), Contains("lora is a section") && Contains("got a list"));
  CHECK_THAT(error_of("data: {train: {columns: [q]}}", {"data.train.columns.prompt=q"}),
             Contains("a mapping of names to names, got a list"));
}

TEST_CASE("an entry of a map whose name has dots is set with the map") {
  const std::string text = error_of("", {"lora.rank_pattern.layers.0.x=8"});
  CHECK_THAT(text, Contains("is set by lora.rank_pattern={layers.0.x: ...}"));
  CHECK(parse("", {"lora.rank_pattern={layers.0.x: 8}"}).lora.rank_pattern[0].first == "layers.0.x");
}

TEST_CASE("an override takes the place of the setting in the file that excludes it") {
  const Settings steps = parse("lr_scheduler: {warmup_ratio: 0.1}", {"lr_scheduler.warmup_steps=2"});
  CHECK(steps.lr_scheduler.warmup_steps == 2);
  CHECK_FALSE(steps.lr_scheduler.warmup_ratio);
  const Settings ratio = parse("lr_scheduler: {warmup_steps: 2}", {"lr_scheduler.warmup_ratio=0.1"});
  CHECK(ratio.lr_scheduler.warmup_ratio == 0.1);
  CHECK_FALSE(ratio.lr_scheduler.warmup_steps);
  const Settings tokens = parse("batch: {global: 8}", {"batch.global_tokens=64"});
  CHECK(tokens.batch.global_tokens == 64);
  CHECK_FALSE(tokens.batch.global);
  const Settings fraction = parse("data: {validation: {path: v}}", {"data.validation.fraction=0.5"});
  CHECK(fraction.data.validation.fraction == 0.5);
  CHECK_FALSE(fraction.data.validation.path);
  CHECK(parse("data: {validation: {fraction: 0.5}}", {"data.validation.path=v"}).data.validation.fraction ==
        0);
}

TEST_CASE("a value that puts a setting out of force takes no other's place") {
  CHECK(parse("lr_scheduler: {warmup_ratio: 0.1}", {"lr_scheduler.warmup_steps=null"})
            .lr_scheduler.warmup_ratio == 0.1);
  CHECK(parse("data: {validation: {path: v}}", {"data.validation.fraction=0"}).data.validation.path == "v");
  CHECK_THAT(error_of("batch: {global: 8}", {"batch.global=null"}), Contains("got neither"));
}

TEST_CASE("two settings that exclude each other are an error in one place, and take nothing when invalid") {
  for (const Exclusion& pair : schema().exclusions()) {
    INFO(pair.fields[0].name);
    const auto set = [](const Exclusion::Member& member) {
      const bool part = member.name.ends_with("ratio") || member.name.ends_with("fraction");
      if (member.name.ends_with("sources")) return member.name + "=[{path: a}]";
      return member.name + (part ? "=0.5" : "=3");
    };
    const std::string one = set(pair.fields[0]), other = set(pair.fields[1]);
    CHECK_THAT(error_of("", {one, other}), Contains("one of them, got both"));
    CHECK_THAT(error_of("", {other, one}), Contains("one of them, got both"));
    CHECK(error_of("", {one}) == "no error");
    CHECK(error_of("", {other}) == "no error");
  }
  CHECK(schema().exclusions().size() == 4);
  CHECK_THAT(error_of("lr_scheduler: {warmup_ratio: 0.1}", {"lr_scheduler.warmup_steps=x"}),
             Contains("warmup_steps: expected an integer") && !Contains("problems"));
}

TEST_CASE("values behind the first that YAML reads are an error that speaks of lists") {
  for (const char* value : {"'q_proj','v_proj'", ",q_proj"}) {
    CHECK_THAT(
        error_of("", {std::string("lora.target_modules=") + value}),
        Contains("override 'lora.target_modules'") && Contains("in brackets, [a, b]") && !Contains("---"));
  }
}

TEST_CASE("a list needs no brackets") {
  const Settings s =
      parse("metrics: {profile_steps: '7'}\n",
            {"lora.target_modules=q_proj,v_proj", "optimizer.betas=0.5,0.25", "metrics.profile_steps=3"});
  CHECK(s.lora.target_modules == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(s.optimizer.betas == std::array{0.5, 0.25});
  CHECK(s.metrics.profile_steps == std::vector<std::int64_t>{3});
  CHECK(parse("lora: {target_modules: \"q_proj, v_proj\"}").lora.target_modules.size() == 1);
  CHECK(parse("lora:\n  target_modules: q_proj, v_proj\n").lora.target_modules.size() == 2);
  CHECK(parse("", {"lora.target_modules=all-linear"}).lora.targets_all_linear());
  CHECK_THAT(error_of("", {"lora.target_modules=q_proj,"}), Contains("in brackets: '[a, b]'"));
  CHECK_THAT(error_of("", {"metrics.profile_steps=3,x"}), Contains("an integer, at least 1, got 'x'"));
}

TEST_CASE("a leading tilde of a path is the home folder") {
  setenv("HOME", "/h/me", /*replace=*/1);
  const Settings s =
      parse("data: {train: {path: ~/rows.jsonl}, cache_dir: '~/cache'}",
            {"model.path=~/base", "checkpoint.output_dir=~/out", "lora.init=~/a", "data.chat_template=~/t"});
  CHECK(s.data.train.path == "/h/me/rows.jsonl");
  CHECK(s.data.cache_dir == "/h/me/cache");
  CHECK(s.model.path == "/h/me/base");
  CHECK(s.checkpoint.output_dir == "/h/me/out");
  CHECK(s.lora.init == "/h/me/a");
  CHECK(s.data.chat_template == "/h/me/t");
  CHECK_FALSE(parse("", {"data.cache_dir=~"}).data.cache_dir);  // YAML's null
  CHECK(parse("", {"data.train.path=./~"}).data.train.path == "./~");
}
