#include "peft/adapter_config.h"

#include <algorithm>

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using Catch::Contains;
using test::error_text;
using Names = std::vector<std::string>;

namespace {

const Names kModules{"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
                     "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"};

LoraConfig round_trip(const LoraConfig& config) {
  const std::string text = adapter_config_json(config, "base", kModules).dump(2);
  const Json json = Json::parse(text, "adapter_config.json");
  return read_adapter_config(JsonView(json, "adapter_config.json"));
}

// The error for a config that is fine but for one member.
std::string error_with(const std::string& key, const std::string& value) {
  Json json = adapter_config_json({}, "base", kModules);
  json.set(key, Json::parse(value, "value"));
  return error_text([&] { read_adapter_config(JsonView(json, "adapter_config.json")); });
}

}  // namespace

TEST_CASE("settings written for PEFT read back equal") {
  const LoraConfig config{.rank = 8,
                          .alpha = 20.5,
                          .dropout = 0.05,
                          .use_dora = true,
                          .use_rslora = true,
                          .target_modules = {"q_proj", "up_proj"}};
  const LoraConfig found = round_trip(config);
  CHECK(found.rank == 8);
  CHECK(found.alpha == 20.5);
  CHECK(found.dropout == 0.05);
  CHECK(found.use_rslora);
  CHECK(found.use_dora);
  CHECK(found.target_modules == config.target_modules);
}

TEST_CASE("all-linear is written out as the names it stands for") {
  CHECK(round_trip({}).target_modules == Names{"q_proj", "up_proj"});
}

TEST_CASE("targets that name single modules stay what they are") {
  CHECK(round_trip({.target_modules = {"layers.0.mlp.up_proj"}}).target_modules ==
        Names{"layers.0.mlp.up_proj"});
}

TEST_CASE("ranks and alphas by pattern are written by whole names, read in their order") {
  const LoraConfig found = round_trip(
      {.rank_pattern = {{"up_proj", 2}, {".*layers.0.*", 4}}, .alpha_pattern = {{"layers.1.*", 0.5}}});
  CHECK(found.rank_pattern ==
        LoraConfig::Pattern<std::int64_t>{{kModules[0], 4}, {kModules[1], 2}, {kModules[3], 2}});
  CHECK(found.alpha_pattern == LoraConfig::Pattern<double>{{kModules[2], 0.5}, {kModules[3], 0.5}});
  Json json = adapter_config_json({}, "base", kModules);
  json.set("rank_pattern", Json::Object{{"up_proj", 2}, {".*", 4}});
  CHECK(read_adapter_config(JsonView(json, "adapter_config.json")).rank_pattern ==
        LoraConfig::Pattern<std::int64_t>{{"up_proj", 2}, {".*", 4}});
  CHECK_THAT(error_with("rank_pattern", "{\"q_proj\": 0}"),
             Contains("rank_pattern: q_proj] expected a rank from 1 to 65536, got 0"));
  CHECK_THAT(error_with("alpha_pattern", "{\"q_proj\": -1}"),
             Contains("alpha_pattern: q_proj] expected an alpha"));
}

TEST_CASE("targets that are chosen by more than names are written as whole names") {
  const std::vector<LoraConfig> configs{{.target_modules = {".*proj"}},
                                        {.exclude_modules = {"down_proj"}},
                                        {.target_modules = {"q_proj"}, .layers_to_transform = {0, 1}},
                                        {.write_whole_names = true},
                                        {.target_modules = {"q_proj"}, .write_whole_names = true}};
  for (const LoraConfig& config : configs) {
    const LoraConfig found = round_trip(config);
    Names sorted = kModules;
    std::sort(sorted.begin(), sorted.end());
    CHECK(found.target_modules == sorted);
    CHECK(found.exclude_modules.empty());
    CHECK(found.layers_to_transform.empty());
  }
}

TEST_CASE("PEFT's other ways to choose modules are read") {
  Json json = adapter_config_json({}, "base", kModules);
  json.set("target_modules", ".*q_proj");
  json.set("exclude_modules", Json::Array{"b", "a"});
  json.set("layers_pattern", "layers");
  json.set("layers_to_transform", 3);
  const JsonView view(json, "adapter_config.json");
  const LoraConfig one = read_adapter_config(view);
  CHECK(one.target_modules == Names{".*q_proj"});
  CHECK(one.exclude_modules == Names{"a", "b"});
  CHECK(one.layers_pattern == Names{"layers"});
  CHECK(one.layers_to_transform == std::vector<std::int64_t>{3});
  CHECK(one.from_file);
  json.set("layers_to_transform", Json::Array{0, 2});
  json.set("exclude_modules", "x.*");
  CHECK(read_adapter_config(view).layers_to_transform == std::vector<std::int64_t>{0, 2});
  CHECK(read_adapter_config(view).exclude_modules == Names{"x.*"});
}

TEST_CASE("what PEFT reads has its types: whole numbers without a point, the base by name") {
  const Json json = adapter_config_json({}, "my/base", kModules);
  CHECK(json.find("peft_type")->string() == "LORA");
  CHECK(json.find("task_type")->string() == "CAUSAL_LM");
  CHECK(json.find("base_model_name_or_path")->string() == "my/base");
  CHECK(json.find("lora_alpha")->is_integer());
  CHECK(json.find("r")->integer() == 16);
  CHECK(json.find("bias")->string() == "none");
}

TEST_CASE("every setting that would compute something else is refused by name") {
  const std::vector<std::pair<std::string, std::string>> refused{{"peft_type", "\"IA3\""},
                                                                 {"rank_pattern", "[4]"},
                                                                 {"alpha_pattern", "8"},
                                                                 {"modules_to_save", "3"},
                                                                 {"layers_to_transform", "\"0\""},
                                                                 {"lora_bias", "true"},
                                                                 {"trainable_token_indices", "[1]"},
                                                                 {"target_parameters", "3"},
                                                                 {"layer_replication", "[[0, 1]]"},
                                                                 {"exclude_modules", "3"},
                                                                 {"alora_invocation_tokens", "[5]"},
                                                                 {"use_qalora", "true"},
                                                                 {"use_bdlora", "{\"nblocks\": 2}"},
                                                                 {"kasa_config", "{\"beta\": 1}"},
                                                                 {"monteclora_config", "{\"n\": 2}"},
                                                                 {"init_lora_weights", "\"pissa\""},
                                                                 {"bias", "\"all\""},
                                                                 {"target_modules", "[]"}};
  for (const auto& [key, value] : refused) {
    CAPTURE(key, value);
    CHECK_THAT(error_with(key, value), Contains("[adapter_config.json: " + key + "]"));
  }
}

TEST_CASE(
    "target_parameters are read beside modules or alone, and written where experts' parameters have "
    "adapters") {
  const std::vector<std::string> names{"mlp.experts.down_proj", "mlp.experts.gate_up_proj"};
  Json json = adapter_config_json({}, "base", kModules);
  CHECK(json.find("target_parameters") == nullptr);
  json = adapter_config_json({.target_modules = {}, .target_parameters = {names[1], names[0]}}, "base", {},
                             {"model.layers.0." + names[0], "model.layers.0." + names[1]});
  const LoraConfig config = read_adapter_config(JsonView(json, "adapter_config.json"));
  CHECK(config.target_parameters == names);
  CHECK(config.target_modules.empty());
  json.set("target_modules", Json());
  CHECK(read_adapter_config(JsonView(json, "adapter_config.json")).target_modules.empty());
  json.set("lora_dropout", 0.5);
  CHECK_THAT(error_text([&] { read_adapter_config(JsonView(json, "adapter_config.json")); }),
             Contains("target_parameters] expected neither use_dora nor lora_dropout"));
  CHECK_THAT(error_with("target_parameters", "[\"mlp.gate.weight\"]"),
             Contains("expected gate_up_proj or down_proj of experts, got 'mlp.gate.weight'"));
  CHECK_THAT(error_with("target_parameters", "\"down_proj\""),
             Contains("target_parameters] expected a list"));
}

TEST_CASE("fan_in_fan_out means nothing to linear modules, in PEFT too") {
  CHECK(error_with("fan_in_fan_out", "true") == "no error");
}

TEST_CASE("starts that leave the base as it is are read, in any case of letters") {
  for (const char* start :
       {"true", "\"gaussian\"", "\"Gaussian\"", "\"orthogonal\"", "\"eva\"", "\"MiCA\""}) {
    CAPTURE(start);
    Json json = adapter_config_json({}, "base", kModules);
    json.set("init_lora_weights", Json::parse(start, "value"));
    CHECK_NOTHROW(read_adapter_config(JsonView(json, "adapter_config.json")));
  }
}

TEST_CASE("tables that are trained whole are written and read") {
  LoraConfig config;
  config.modules_to_save = {"embed_tokens", "lm_head"};
  CHECK(round_trip(config).modules_to_save == config.modules_to_save);
  CHECK_FALSE(round_trip(config).ensure_weight_tying);
  config.ensure_weight_tying = true;
  CHECK(round_trip(config).ensure_weight_tying);
}

TEST_CASE("a setting that asks for nothing is no obstacle") {
  for (const char* value : {"null", "false", "[]", "{}"})
    CHECK(error_with("modules_to_save", value) == "no error");
  CHECK(error_with("target_modules", "\"all-linear\"") == "no error");
  CHECK(error_with("a_key_of_a_later_version", "3") == "no error");
}

TEST_CASE("numbers out of range and missing keys are errors") {
  CHECK_THAT(error_with("r", "0"), Contains("r] expected a rank from 1 to 65536, got "));
  CHECK_THAT(error_with("r", "70000"), Contains("r] expected a rank from 1 to 65536, got "));
  CHECK_THAT(error_with("lora_alpha", "0"), Contains("lora_alpha] expected an alpha above 0"));
  CHECK_THAT(error_with("lora_alpha", "1e300"),
             Contains("lora_alpha] expected an alpha above 0 and at most 1e6, got 1e+300"));
  CHECK_THAT(error_with("r", "\"8\""), Contains("r] expected an integer"));
  for (const char* key : {"peft_type", "r", "lora_alpha", "target_modules"}) {
    Json json = adapter_config_json({}, "base", kModules);
    std::erase_if(json.object(), [&](const Json::Member& member) { return member.first == key; });
    CHECK_THAT(error_text([&] { read_adapter_config(JsonView(json, "adapter_config.json")); }),
               Contains("'" + std::string(key) + "' is missing"));
  }
}
