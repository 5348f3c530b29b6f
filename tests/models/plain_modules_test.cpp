#include "models/plain_modules.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::models;
using Catch::Contains;

namespace {

PlainModules modules(const std::string& settings) {
  const Json json = Json::parse("{\"quantization_config\": " + settings + "}", "config.json");
  return PlainModules(JsonView(json, "config.json"));
}

}  // namespace

TEST_CASE("bitsandbytes' and fp8's exceptions match as transformers matches them") {
  for (const char* key : {"llm_int8_skip_modules", "modules_to_not_convert"}) {
    const PlainModules plain =
        modules("{\"" + std::string(key) + R"(": ["lm_head", "model.layers.1.mlp", "model.layers.2", "o_proj",
                                               "model.layers.(3|4).mlp.up"]})");
    for (const char* module :
         {"lm_head", "model.layers.1.mlp.up_proj", "model.layers.1.mlp", "model.layers.2.self_attn.q_proj",
          "model.layers.7.self_attn.o_proj", "o_proj.base"}) {
      CAPTURE(module);
      CHECK(plain.contains(module));
    }
    for (const char* module : {"model.layers.11.mlp.up_proj", "model.layers.1.mlp_norm.x",
                               "model.layers.20.self_attn.q_proj", "model.layers.3.mlp.up_proj"}) {
      CAPTURE(module);
      CHECK_FALSE(plain.contains(module));
    }
  }
}

TEST_CASE("compressed-tensors' exceptions are whole names, or expressions behind re:") {
  const PlainModules plain =
      modules(R"({"ignore": ["lm_head", "model.layers.1.mlp", "re:.*layers\\.2\\..*q_proj"]})");
  CHECK(plain.contains("lm_head"));
  CHECK(plain.contains("model.layers.2.self_attn.q_proj"));
  CHECK_FALSE(plain.contains("model.layers.1.mlp.up_proj"));
  CHECK_FALSE(plain.contains("model.layers.12.self_attn.k_proj"));
  CHECK_FALSE(plain.contains("q_proj"));
}

TEST_CASE("a config without exceptions has none, and what isn't a list of names is refused by its key") {
  const Json none = Json::parse("{}", "config.json");
  CHECK_FALSE(PlainModules(JsonView(none, "config.json")).contains("lm_head"));
  CHECK_FALSE(modules(R"({"llm_int8_skip_modules": null})").contains("lm_head"));
  const auto said = [](const std::string& settings) { return test::error_text([&] { modules(settings); }); };
  CHECK_THAT(said(R"({"modules_to_not_convert": "lm_head"})"), Contains("modules_to_not_convert"));
  CHECK_THAT(said(R"({"ignore": [1]})"), Contains("ignore"));
  CHECK_THAT(said(R"({"llm_int8_skip_modules": ["(unclosed"]})"), Contains("llm_int8_skip_modules"));
}
