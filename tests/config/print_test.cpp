#include <set>

#include "config/schema.h"
#include "support.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::config;
using Catch::Contains;
using test::parse;

namespace {

// The default's YAML, changed into another valid value of the field.
std::string other_value(const Field& field, const std::string& current) {
  static const std::map<std::string, std::string> kByName{
      {"lora.target_modules", "[q_proj, k_proj]"},
      {"lora.rank_pattern", "{down_proj: 8, 'layers\\.[01].*': 2}"},
      {"lora.alpha_pattern", "{down_proj: 0.5}"},
      {"lora.init", "./adapter"},
      {"data.train.format", "chat"},
      {"data.train.columns", "{prompt: \"a b\"}"},
      {"data.train.sources", "[{path: a, weight: 2, where: {max_tokens: 9}}, {path: b}]"},
      {"data.train.mix_by", "tokens"},
      {"data.train.stopping_strategy", "all_exhausted"},
      {"data.validation.path", "held.jsonl"},
      {"data.overlong", "error"},
      {"batch.micro", "2"},
      {"training.activation_checkpointing", "full"},
      {"training.offload", "both"},
      {"optimizer.eps", "1e-6"},
      {"optimizer.betas", "[0.5, 0.25]"},
      {"lr_scheduler.name", "constant"},
      {"precision.preset", "fp32"},
      {"precision.base_storage", "fp32"},
      {"precision.compute", "fp32"},
      {"precision.adapter", "fp32"},
      {"precision.reduce", "fp32"},
      {"precision.matmul", "fp32"},
      {"device", "cuda:1"},
      {"distributed.strategy", "replicate"},
      {"checkpoint.resume", "never"},
      {"data.train_on", "last"},
      {"data.train_on_prompt", "true"},
      {"data.template_date", "2025-01-31"},
      {"metrics.profile_steps", "[3, 4]"},
  };
  if (const auto it = kByName.find(field.name); it != kByName.end()) return it->second;
  if (current == "true" || current == "false") return current == "true" ? "false" : "true";
  if (field.name.find("path") != std::string::npos || field.name.ends_with("dir") ||
      field.name.ends_with("template"))
    return "\"some where: else\"";
  if (field.name == "data.validation.fraction" || field.name == "lora.dropout") return "0.25";
  if (field.name == "lr_scheduler.warmup_ratio") return "0.125";
  if (field.name == "lr_scheduler.min_lr") return "1e-5";
  return field.name.find("weight_decay") != std::string::npos ? "0.5" : "3";
}

bool only_one_value(const Field& field) { return field.name == "optimizer.name"; }

}  // namespace

TEST_CASE("every field's name and value can be listed, in the schema's order") {
  const auto values = field_values(parse("lora: {rank: 4}"), FingerprintScope::kAll);
  const auto rank =
      std::find(values.begin(), values.end(), std::pair<std::string, std::string>{"lora.rank", "4"});
  CHECK(rank != values.end());
  CHECK(values.front().first == "model.path");
  CHECK(field_values(parse(""), FingerprintScope::kNumbers).size() < values.size());
}

TEST_CASE("every field reads, prints and reads back, changed from its default") {
  for (const Field& field : schema().fields()) {
    INFO(field.name);
    Settings s = parse("");
    if (!only_one_value(field)) {
      const std::string before = field.write(s);
      const std::string value = field.name == "checkpoint.keep_last" ? "5" : other_value(field, before);
      field.read(s, parse_yaml(value, "f"));
      CHECK(field.write(s) != before);
    }
    Settings back;
    field.read(back, parse_yaml(field.write(s), "f"));
    CHECK(field.write(back) == field.write(s));
  }
}

TEST_CASE("the old name of train_on is read, and is an error where it contradicts") {
  CHECK(parse("data: {train_on_prompt: true}").data.train_on == TrainOn::kAll);
  CHECK(parse("data: {train_on_prompt: false}").data.train_on == TrainOn::kRoles);
  CHECK_FALSE(parse("data: {train_on_prompt: false}").data.train_on_prompt.has_value());
  CHECK(parse("data: {train_on_prompt: true, train_on: all}").data.train_on == TrainOn::kAll);
  CHECK_THROWS_WITH(parse("data: {train_on_prompt: true, train_on: last}"), Contains("contradict"));
  CHECK_THROWS_WITH(parse("data: {template_date: 2025-02-30}"), Contains("a day such as"));
}

TEST_CASE("the printed config loads to equal settings and prints the same again") {
  const Settings s = parse(
      "data: {validation: {path: 'v: 1'}, train: {columns: {prompt: q}}}\nbatch: {global_tokens: 512}\n"
      "lr_scheduler: {warmup_steps: 0}\ntraining: {clip_grad_norm: null}\nlora: {target_modules: q_proj}\n");
  const std::string yaml = to_yaml(s);
  const Settings back = parse_settings(yaml, "other.yaml");
  CHECK(differences(s, back, FingerprintScope::kAll).empty());
  CHECK(to_yaml(back) == yaml);
  CHECK_THAT(yaml, Contains("\n  validation:\n    path: \"v: 1\"\n") && Contains("\ndevice: auto\n"));
}

TEST_CASE("numbers print short and exactly, in a form that YAML 1.1 takes for numbers") {
  CHECK(format_number(2e-4) == "2.0e-4");
  CHECK(format_number(1e-8) == "1.0e-8");
  CHECK(format_number(32) == "32");
  CHECK(format_number(0.1 + 0.2) == "0.30000000000000004");
  CHECK(format_number(1e22) == "1.0e+22");
  CHECK(format_number(1.25e-10) == "1.25e-10");
  CHECK(format_number(0) == "0");
}

TEST_CASE("the fingerprint of the numbers leaves out where a run is kept, and nothing else") {
  const Settings a = parse("");
  const Settings moved = parse("", {"checkpoint.output_dir=x", "metrics.log_every_steps=5",
                                    "data.cache_dir=c", "device=cpu", "checkpoint.keep_last=null"});
  CHECK(fingerprint(a, FingerprintScope::kNumbers) == fingerprint(moved, FingerprintScope::kNumbers));
  CHECK(fingerprint(a, FingerprintScope::kAll) != fingerprint(moved, FingerprintScope::kAll));
  CHECK(differences(a, moved, FingerprintScope::kNumbers).empty());

  std::set<std::string> seen{fingerprint(a, FingerprintScope::kNumbers)};
  for (const char* change :
       {"lora.rank=4", "optimizer.lr=1e-4", "training.seed=1", "data.max_seq_len=64", "batch.global=8",
        "precision.preset=fp32", "data.train.path=y", "model.path=z"}) {
    CHECK(seen.insert(fingerprint(parse("", {change}), FingerprintScope::kNumbers)).second);
  }
}

TEST_CASE("differences name the field with its old and its new value") {
  const auto found = differences(parse(""), parse("", {"lora.rank=8", "batch.global_tokens=64"}),
                                 FingerprintScope::kNumbers);
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "lora.rank");
  CHECK(found[0].old_value == "16");
  CHECK(found[0].new_value == "8");
  CHECK(found[1].name == "batch.global");
  CHECK(found[1].new_value == "null");
}

TEST_CASE("the reference and the help name every field with its default") {
  const std::string markdown = reference_markdown();
  const std::string help = help_text();
  for (const Field& field : schema().fields()) {
    INFO(field.name);
    CHECK_THAT(markdown, Contains("| `" + field.name + "` |"));
    CHECK_THAT(help, Contains(field.name + "  ["));
    CHECK_FALSE(field.help.empty());
    CHECK(field.help.ends_with('.'));
  }
  CHECK_THAT(markdown, Contains("- `lr_scheduler.warmup_ratio` and `lr_scheduler.warmup_steps`\n"));
  CHECK_THAT(markdown, Contains("| `model.path` | required |") && Contains("runs/<the config file's name>") &&
                           Contains("| `optimizer.lr` | 2.0e-4 | a number, above 0"));
}
