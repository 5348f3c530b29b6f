#include "peft/target_rules.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using Catch::Contains;
using test::error_text;
using Names = std::vector<std::string>;

namespace {

const Names kModules{"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
                     "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj",
                     "model.layers.11.mlp.up_proj",     "lm_head"};

Names adapted(const LoraConfig& config) {
  const TargetRules rules(config);
  Names names;
  for (const std::string& module : kModules) {
    if (rules.matches(module, module == "lm_head")) names.push_back(module);
  }
  return names;
}

std::string unused(const LoraConfig& config) {
  return error_text([&] {
    TargetRules(config).require_used(
        {.modules = kModules, .parameters = {}, .adapted = adapted(config), .tables = {}});
  });
}

}  // namespace

TEST_CASE("the scale is alpha over rank, or over its root with rsLoRA") {
  CHECK(TargetRules({.rank = 16, .alpha = 32}).scale("q_proj") == 2);
  CHECK(TargetRules({.rank = 16, .alpha = 32, .use_rslora = true}).scale("q_proj") == 8);
}

TEST_CASE("a target matches a module's name or its end after a dot") {
  const TargetRules rules({.target_modules = {"q_proj", "layers.1.up_proj"}});
  CHECK(rules.matches("model.layers.0.self_attn.q_proj", false));
  CHECK(rules.matches("q_proj", false));
  CHECK(rules.matches("model.layers.1.up_proj", false));
  CHECK_FALSE(rules.matches("model.layers.0.up_proj", false));
  CHECK_FALSE(rules.matches("model.layers.11.up_proj", false));
  CHECK_FALSE(rules.matches("model.layers.0.self_attn.eq_proj", false));
  CHECK_FALSE(rules.matches("model.layers.0.q_proj.inner", false));
}

TEST_CASE("all-linear matches everything but the head") {
  CHECK(TargetRules({}).matches("anything", false));
  CHECK_FALSE(TargetRules({}).matches("lm_head", true));
}

TEST_CASE("a regular expression matches whole names, the head's too") {
  CHECK(adapted({.target_modules = {R"(.*\.q_proj|lm_head)"}}) == Names{kModules[0], kModules[2], "lm_head"});
  CHECK(adapted({.target_modules = {R"(q_proj|up_pro.)"}}).empty());
  CHECK(adapted({.target_modules = {R"((?!.*\.1\.).*up_proj)"}}) == Names{kModules[1], kModules[4]});
  CHECK(adapted({.target_modules = {R"(model(?P<rest>\..*)\.q_proj)"}}).size() == 2);
}

TEST_CASE("excluded modules get none, by name and by regular expression") {
  CHECK(adapted({.exclude_modules = {"up_proj"}}) == Names{kModules[0], kModules[2]});
  CHECK(adapted({.exclude_modules = {R"(.*layers\.1+\..*)"}}) == Names{kModules[0], kModules[1]});
  CHECK(adapted({.target_modules = {"q_proj", "lm_head"}, .exclude_modules = {"lm_head"}}) ==
        Names{kModules[0], kModules[2]});
}

TEST_CASE("only the modules of the layers named get an adapter") {
  CHECK(adapted({.layers_to_transform = {1}}) == Names{kModules[2], kModules[3]});
  CHECK(adapted({.target_modules = {"up_proj"}, .layers_to_transform = {0, 11}}) ==
        Names{kModules[1], kModules[4]});
  CHECK(adapted({.layers_to_transform = {1}, .layers_pattern = {"layers"}}).size() == 2);
  CHECK(adapted({.layers_to_transform = {1}, .layers_pattern = {"blocks"}}).empty());
  // A module without a number is in no layer.
  CHECK(adapted({.target_modules = {"lm_head"}, .layers_to_transform = {0}}).empty());
}

TEST_CASE("the first pattern that matches a module's name or its end gives its rank and alpha") {
  const TargetRules rules({.rank = 8,
                           .alpha = 16,
                           .rank_pattern = {{"up_proj", 2}, {R"(layers\.\d\..*)", 4}},
                           .alpha_pattern = {{"model.layers.0.self_attn.q_proj", 3}}});
  CHECK(rules.rank("model.layers.1.mlp.up_proj") == 2);
  CHECK(rules.scale("model.layers.1.mlp.up_proj") == 8);
  CHECK(rules.rank("model.layers.0.self_attn.q_proj") == 4);
  CHECK(rules.scale("model.layers.0.self_attn.q_proj") == 0.75);
  CHECK(rules.rank("model.layers.11.self_attn.q_proj") == 8);
  CHECK(rules.rank("model.layers.1.mlp.sup_proj") == 4);  // no dot before the name
  CHECK(rules.rank("up_proj.inner") == 8);
}

TEST_CASE("a setting that matches nothing is an error with the modules there are") {
  CHECK(unused({}) == "no error");
  CHECK_THAT(unused({.target_modules = {"q_proj", "up_prjo"}}),
             Contains("[lora.target_modules] 'up_prjo' matches no module") &&
                 Contains("did you mean 'up_proj'?") && Contains("it has lm_head, q_proj, up_proj"));
  CHECK_THAT(unused({.target_modules = {"q_proj|k_proj"}}),
             Contains("[lora.target_modules] no module of this model matches 'q_proj|k_proj'; a regular") &&
                 Contains("match a whole name") && Contains("it has lm_head, q_proj, up_proj"));
  CHECK_THAT(unused({.target_modules = {"q_proj"}, .exclude_modules = {"q_proj"}}),
             Contains("[lora.target_modules] no module of this model gets an adapter: lora.exclude_modules"));
  CHECK_THAT(unused({.exclude_modules = {"k_proj"}}), Contains("[lora.exclude_modules] 'k_proj'"));
  CHECK_THAT(unused({.exclude_modules = {".*k_proj"}}), Contains("[lora.exclude_modules] '.*k_proj'"));
  CHECK_THAT(unused({.layers_to_transform = {0, 12}}),
             Contains("[lora.layers_to_transform] no module of layer 12"));
  CHECK_THAT(unused({.rank_pattern = {{"up_proj", 2}, {"lm_head", 2}}}),
             Contains("[lora.rank_pattern] 'lm_head' matches no adapted module"));
  CHECK_THAT(unused({.alpha_pattern = {{"k_proj", 2}}}), Contains("[lora.alpha_pattern] 'k_proj'"));
}

TEST_CASE("of an adapter file's settings the targets alone must match") {
  CHECK(unused({.exclude_modules = {"visual"}, .rank_pattern = {{"k_proj", 2}}, .from_file = true}) ==
        "no error");
  CHECK_THAT(unused({.target_modules = {"q_proj", "k_proj"}, .from_file = true}),
             Contains("[adapter] its target_modules name 'k_proj', which matches no module") &&
                 Contains("for another base; this one has lm_head, q_proj, up_proj"));
  // Of a multimodal checkpoint they may be a vision tower's.
  LoraConfig multimodal{.target_modules = {"q_proj", "fc1"}, .from_file = true};
  multimodal.checkpoint_names.other_parts = {"vision_tower."};
  CHECK(unused(multimodal) == "no error");
  multimodal.target_modules = {"fc1"};
  CHECK_THAT(unused(multimodal), Contains("[lora.target_modules] no module of this model matches"));
}

TEST_CASE("an adapter file leaves out experts of a layer of which it has none") {
  const std::string expert = "model.layers.0.mlp.experts.3.down_proj";
  LoraConfig config{.target_modules = {"down_proj"}, .from_file = true};
  CHECK_FALSE(TargetRules(config).leaves_out(expert));  // what it has isn't known
  config.modules_in_file = {"model.layers.0.mlp.shared_expert.down_proj",
                            "model.layers.1.mlp.experts.3.down_proj"};
  CHECK(TargetRules(config).leaves_out(expert));
  CHECK_FALSE(TargetRules(config).leaves_out("model.layers.1.mlp.experts.0.down_proj"));
  CHECK_FALSE(TargetRules(config).leaves_out("model.layers.2.mlp.shared_expert.down_proj"));
  config.checkpoint_names.prefixes = {{"model.", "model.language_model."}};
  config.modules_in_file = {"model.language_model.layers.0.mlp.experts.1.down_proj"};
  CHECK_FALSE(TargetRules(config).leaves_out(expert));
  config.from_file = false;
  CHECK_FALSE(TargetRules(config).leaves_out(expert));
}

TEST_CASE("a regular expression that doesn't compile is an error that names the setting") {
  for (const char* pattern : {"(q_proj", "a)(b", "*", "[q"}) {
    CAPTURE(pattern);
    CHECK_THAT(error_text([&] { TargetRules({.target_modules = {pattern}}); }),
               Contains("[lora.target_modules]") && Contains("doesn't compile"));
    CHECK_THAT(error_text([&] { TargetRules({.rank_pattern = {{pattern, 2}}}); }),
               Contains("[lora.rank_pattern]") && Contains("doesn't compile"));
  }
}
