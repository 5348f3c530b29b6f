#include "models/registry.h"

#include "base/file.h"
#include "llama_json.h"
#include "nn/causal_lm.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using Catch::Contains;
using test::error_text;
using test::llama_json;

TEST_CASE("an unknown family is an error that lists those known") {
  const Json json = llama_json(R"({"model_type": "mamba"})");
  CHECK_THAT(error_text([&] { model_spec(JsonView(json, "config.json")); }),
             Contains("model_type 'mamba' is not supported; the families are ") &&
                 Contains(", falcon, gemma, gemma2, "));
  const Json none = llama_json(R"({"model_type": null})");
  CHECK_THAT(error_text([&] { model_spec(JsonView(none, "config.json")); }),
             Contains("'model_type' is missing"));
}

TEST_CASE("a folder without a readable config.json is an error that names it") {
  const test::TemporaryFolder folder;
  CHECK_THAT(error_text([&] { read_config_json(folder.path()); }), Contains("has no config.json"));
  write_file_atomic(folder / "config.json", "{\"a\": ");
  CHECK_THAT(error_text([&] { read_config_json(folder.path()); }), Contains("config.json"));
}

TEST_CASE("a Llama model's parameters are counted as its projections have them") {
  const Json json = llama_json();
  const nn::CausalLMSpec spec = model_spec(JsonView(json, "config.json"));
  nn::FrozenFactory factory(precision::Policy{});
  const nn::CausalLM model(spec, factory);
  std::int64_t counted = 0, output_rows = 0;
  const std::string last = "model.layers." + std::to_string(spec.layers.size() - 1);
  for (const auto& unit : model.store().units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      if (!segment.name.ends_with("_proj.weight")) continue;
      counted += segment.shape[0] * segment.shape[1];
      if (segment.name.starts_with(last + ".mlp") || segment.name == last + ".self_attn.o_proj.weight")
        output_rows += segment.shape[0] * segment.shape[1];
    }
  }
  CHECK(model.shape().layer_linear_parameters == counted);
  CHECK(output_rows > 0);
  CHECK(model.shape().output_row_parameters == output_rows);
}
