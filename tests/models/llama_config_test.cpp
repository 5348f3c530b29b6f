#include "models/llama/config.h"

#include <cmath>

#include "llama_json.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::models;
using Catch::Contains;
using test::error_text;
using test::llama_json;
using Scaling = nn::RotarySpec::Scaling;

namespace {

LlamaConfig read(const std::string& changes = "{}") {
  const Json json = llama_json(changes);
  return read_llama_config(JsonView(json, "config.json"));
}

std::string error_of(const std::string& changes) {
  return error_text([&] { read(changes); });
}

const std::string kLlama3 =
    R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192})";

// kLlama3 with one member replaced, or taken away with null.
std::string llama3_with(const std::string& key, Json value) {
  Json scaling = Json::parse(kLlama3, "llama3");
  if (value.is_null()) {
    std::erase_if(scaling.object(), [&](const Json::Member& m) { return m.first == key; });
  } else {
    scaling.set(key, std::move(value));
  }
  return "{\"rope_scaling\": " + scaling.dump() + "}";
}

}  // namespace

TEST_CASE("a config of transformers 4 is read with what it implies") {
  const LlamaConfig c = read();
  CHECK(c.vocab_size == 128);
  CHECK(c.hidden_size == 64);
  CHECK(c.intermediate_size == 96);
  CHECK(c.layers == 2);
  CHECK(c.heads == 8);
  CHECK(c.kv_heads == 2);
  CHECK(c.head_dim == 8);
  CHECK(c.max_position == 512);
  CHECK(c.rms_norm_eps == 1e-5);
  CHECK_FALSE(c.attention_bias);
  CHECK_FALSE(c.mlp_bias);
  CHECK_FALSE(c.tied_head);
  CHECK(c.rotary == nn::RotarySpec{.head_dim = 8, .rotary_dim = 8, .theta = 500000.0});
}

TEST_CASE("options of a config are read") {
  const LlamaConfig c = read(R"({"num_key_value_heads": null, "head_dim": 16, "attention_bias": true,
                                 "mlp_bias": true, "tie_word_embeddings": true, "hidden_act": "silu"})");
  CHECK(c.kv_heads == 8);
  CHECK(c.head_dim == 16);
  CHECK(c.rotary.rotary_dim == 16);
  CHECK(c.attention_bias);
  CHECK(c.mlp_bias);
  CHECK(c.tied_head);
}

TEST_CASE("both layouts of the rotary settings give the same") {
  const nn::RotarySpec llama3{.head_dim = 8,
                              .rotary_dim = 8,
                              .theta = 500000,
                              .scaling = Scaling::kLlama3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_max_position = 8192};
  CHECK(read("{\"rope_scaling\": " + kLlama3 + "}").rotary == llama3);
  std::string parameters = kLlama3;
  parameters.insert(1, "\"rope_theta\": 500000.0, ");
  CHECK(read("{\"rope_theta\": null, \"rope_parameters\": " + parameters + "}").rotary == llama3);
  CHECK(read("{\"rope_parameters\": " + parameters + ", \"rope_scaling\": " + kLlama3 + "}").rotary ==
        llama3);

  const nn::RotarySpec linear{
      .head_dim = 8, .rotary_dim = 8, .theta = 500000, .scaling = Scaling::kLinear, .factor = 4};
  CHECK(read(R"({"rope_scaling": {"type": "linear", "factor": 4}})").rotary == linear);
  CHECK(read(R"({"rope_theta": null,
                 "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000}})")
            .rotary == linear);

  // The first Llama's files have rope_scaling alone, as null.
  Json oldest = llama_json(R"({"rope_theta": null})");
  oldest.set("rope_scaling", nullptr);
  CHECK(read_llama_config(JsonView(oldest, "config.json")).rotary.theta == 10000);
}

TEST_CASE("yarn's numbers are read, and those that a file leaves out are transformers'") {
  const nn::RotarySpec plain = read(R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})").rotary;
  CHECK(plain == nn::RotarySpec{.head_dim = 8,
                                .rotary_dim = 8,
                                .theta = 500000,
                                .scaling = Scaling::kYarn,
                                .factor = 4,
                                .original_max_position = 512,  // max_position_embeddings
                                .attention_factor = 0.1 * std::log(4.0) + 1});
  const auto with = [](const std::string& more) {
    return read(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, )" + more + "}}").rotary;
  };
  const nn::RotarySpec all = with(R"("original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2,
                                     "attention_factor": 1.5, "truncate": false)");
  CHECK(all.original_max_position == 64);
  CHECK(all.beta_fast == 16);
  CHECK(all.beta_slow == 2);
  CHECK(all.attention_factor == 1.5);
  CHECK_FALSE(all.truncate);
  // One of the two has no effect without the other.
  CHECK(with(R"("mscale": 2.0)").attention_factor == plain.attention_factor);
  CHECK(with(R"("mscale": 2.0, "mscale_all_dim": 0.5)").attention_factor ==
        Approx((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));
}

TEST_CASE("the original length of the whole file counts for llama3 too") {
  const std::string top = "{\"original_max_position_embeddings\": 64, \"rope_scaling\": ";
  CHECK_THAT(error_of(top + kLlama3 + "}"), Contains("differs from that of the whole file, 64"));
  std::string alone = kLlama3;
  const std::string own = "\"original_max_position_embeddings\": 8192";
  REQUIRE(alone.find(own) != std::string::npos);
  alone.replace(alone.find(own), own.size(), "\"original_max_position_embeddings\": null");
  CHECK(read(top + alone + "}").rotary.original_max_position == 64);
}

TEST_CASE("yarn with numbers that contradict each other, or that it doesn't have, is an error") {
  const auto yarn = [](const std::string& more) {
    return error_of(R"({"rope_scaling": {"rope_type": "yarn", )" + more + "}}");
  };
  CHECK_THAT(yarn(R"("beta_fast": 4)"), Contains("'factor' is missing"));
  CHECK_THAT(yarn(R"("factor": 0.5)"), Contains("rope_scaling.factor] expected at least 1"));
  CHECK_THAT(yarn(R"("factor": 2, "beta_fast": 1, "beta_slow": 2)"),
             Contains("beta_fast to be at least beta_slow"));
  CHECK_THAT(yarn(R"("factor": 2, "low_freq_factor": 1)"),
             Contains("low_freq_factor] is no setting of this rotary type"));
  CHECK_THAT(yarn(R"("factor": 2, "llama_4_scaling_beta": 0.1)"),
             Contains("llama_4_scaling_beta] is no setting"));
  CHECK_THAT(error_of(R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn", "factor": 2}})"),
             Contains("yarn needs a rotary base above 1"));
  CHECK_THAT(
      error_of(R"({"original_max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 2,
                          "original_max_position_embeddings": 32}})"),
      Contains("differs from that of the whole file, 64"));
}

TEST_CASE("a missing number is an error that names its key") {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings", "rms_norm_eps"}) {
    CHECK_THAT(error_of("{\"" + std::string(key) + "\": null}"),
               Contains("config.json") && Contains("'" + std::string(key) + "' is missing"));
  }
}

TEST_CASE("numbers out of range or of another kind are errors that name their key") {
  CHECK_THAT(error_of(R"({"vocab_size": 0})"), Contains("config.json: vocab_size") && Contains("from 1 to"));
  CHECK_THAT(error_of(R"({"hidden_size": -64})"), Contains("hidden_size") && Contains("got -64"));
  CHECK_THAT(error_of(R"({"num_hidden_layers": 99999999999})"), Contains("num_hidden_layers"));
  CHECK_THAT(error_of(R"({"num_attention_heads": "8"})"),
             Contains("num_attention_heads") && Contains("integer"));
  CHECK_THAT(error_of(R"({"num_key_value_heads": 0})"), Contains("num_key_value_heads"));
  CHECK_THAT(error_of(R"({"rms_norm_eps": 0})"), Contains("rms_norm_eps"));
  CHECK_THAT(error_of(R"({"rms_norm_eps": 1.5})"), Contains("rms_norm_eps"));
  CHECK_THAT(error_of(R"({"mlp_bias": 1})"), Contains("mlp_bias") && Contains("true or false"));
  CHECK_THAT(error_of(R"({"rope_theta": -1.0})"), Contains("rope_theta") && Contains("from 1e-6"));
}

TEST_CASE("sizes whose products would overflow are errors, as are layers without number") {
  CHECK_THAT(error_of(R"({"num_hidden_layers": 1000000})"), Contains("num_hidden_layers] expected"));
  CHECK_THAT(error_of(R"({"hidden_size": 268435456})"), Contains("hidden_size] expected"));
  CHECK_THAT(error_of(R"({"num_attention_heads": 65536, "head_dim": 65536})"),
             Contains("num_attention_heads 65536 times head_dim 65536"));
  CHECK_THAT(error_of(R"({"rope_theta": 1e300})"), Contains("rope_theta] expected"));
  CHECK_THAT(error_of(llama3_with("factor", 1e-300)), Contains("factor] expected"));
}

TEST_CASE("numbers that contradict each other are errors") {
  CHECK_THAT(error_of(R"({"num_key_value_heads": 3})"),
             Contains("8 is no multiple of num_key_value_heads 3"));
  CHECK_THAT(error_of(R"({"hidden_size": 60})"), Contains("60 is no multiple of num_attention_heads 8"));
  CHECK(error_of(R"({"hidden_size": 60, "head_dim": 8})") == "no error");
  CHECK_THAT(error_of(R"({"head_dim": 7})"), Contains("head_dim 7 is odd"));
}

TEST_CASE("another activation than Llama's is an error") {
  CHECK_THAT(error_of(R"({"hidden_act": "gelu\u001b"})"), Contains("hidden_act") && !Contains("\x1b"));
}

TEST_CASE("a config without rotary settings is an error, never a default") {
  CHECK_THAT(error_of(R"({"rope_theta": null})"), Contains("neither 'rope_parameters' nor 'rope_theta'"));
  Json with_null = llama_json();
  with_null.set("rope_theta", nullptr);
  CHECK_THAT(error_text([&] { read_llama_config(JsonView(with_null, "config.json")); }),
             Contains("neither 'rope_parameters'"));
}

TEST_CASE("a rotary base within rope_scaling counts, alone or beside an equal one") {
  for (const char* type : {R"("type": "linear", "factor": 2)", R"("rope_type": "default")"}) {
    const std::string scaling = "\"rope_scaling\": {" + std::string(type) + ", \"rope_theta\": 300.0}";
    CHECK(read("{\"rope_theta\": null, " + scaling + "}").rotary.theta == 300);
    CHECK(read("{\"rope_theta\": 300, " + scaling + "}").rotary.theta == 300);
    CHECK_THAT(error_of("{" + scaling + "}"),
               Contains("'rope_theta' and 'rope_scaling.rope_theta' differ; remove the wrong one"));
    CHECK_THAT(error_of(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 200.0}, )" + scaling + "}"),
               Contains("'rope_parameters.rope_theta' and 'rope_scaling.rope_theta' differ"));
  }
  CHECK_THAT(error_of(R"({"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 0.5}})"),
             Contains("partial_rotary_factor] only 1 is supported"));
}

TEST_CASE("two layouts that differ are an error") {
  CHECK_THAT(error_of(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})"),
             Contains("'rope_theta' and 'rope_parameters.rope_theta' differ"));
  CHECK_THAT(error_of(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
                          "rope_scaling": {"rope_type": "linear", "factor": 2}})"),
             Contains("'rope_scaling' and 'rope_parameters' differ"));
}

TEST_CASE("rotary settings that are unknown or lack a number are errors") {
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})"),
             Contains("'dynamic' is not supported; default, linear, llama3 and yarn are"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear"}})"), Contains("'factor' is missing"));
  CHECK_THAT(error_of(R"({"rope_theta": null, "rope_parameters": {"rope_type": "default"}})"),
             Contains("'rope_theta' is missing"));
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    CHECK_THAT(error_of(llama3_with(key, nullptr)), Contains("'" + std::string(key) + "' is missing"));
    CHECK_THAT(error_of(llama3_with(key, 0)),
               Contains(std::string(key) + "] expected a number from 1e-6 to 1e12"));
  }
  CHECK_THAT(error_of(llama3_with("high_freq_factor", 1)),
             Contains("high_freq_factor above low_freq_factor"));
}
