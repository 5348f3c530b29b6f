#include "models/mistral/mistral.h"

#include "models/decoder_spec.h"
#include "models/multimodal.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

constexpr const char* kTied = "tie_word_embeddings";

// Llama's blocks with the window of each layer, 0 for none; names of weights begin with `model`.
nn::CausalLMSpec windowed_decoder(const DecoderSizes& sizes, const nn::RotarySpec& rotary, double eps,
                                  const std::vector<std::int64_t>& windows, const std::string& model) {
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps, model);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i, model + ".layers");
    layer.attention.options.window = windows[static_cast<std::size_t>(i)];
    spec.layers.push_back(layer);
  }
  return spec;
}

std::vector<std::int64_t> same_window(ConfigReader& config, const DecoderSizes& sizes) {
  const std::int64_t window = config.size_or("sliding_window", kMostPositions, 0);
  return std::vector<std::int64_t>(static_cast<std::size_t>(sizes.layers), window);
}

// Mistral, and Ministral `by_layer_types`.
nn::CausalLMSpec mistral_decoder(const JsonView& json, const std::string& model,
                                 bool by_layer_types = false) {
  ConfigReader config(json, by_layer_types ? "ministral" : "mistral");
  const DecoderSizes sizes = read_sizes(config);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool slides = read_whether_windowed(config);
  const auto windows = by_layer_types ? read_windows(config, sizes, [slides](std::int64_t) { return slides; })
                                      : same_window(config, sizes);
  const nn::RotarySpec rotary = read_rope(config, sizes.head_dim);
  config.finish();
  return windowed_decoder(sizes, rotary, eps, windows, model);
}

nn::CausalLMSpec ministral3_decoder(const JsonView& json, const std::string& model) {
  ConfigReader config(json, "ministral3");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.padding_id = 11});
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-5;
  config.choice("hidden_act", "silu", {"silu"});
  const auto windows = same_window(config, sizes);
  const nn::RotarySpec rotary = read_rope(config, sizes.head_dim, {.query_scaling = true});
  if (rotary.scaling != nn::RotarySpec::Scaling::kYarn)
    config.fail("rope_parameters",
                "expected rope_type yarn with llama_4_scaling_beta, without which "
                "transformers doesn't compute this family");
  config.finish();
  return windowed_decoder(sizes, rotary, eps, windows, model);
}

}  // namespace

nn::CausalLMSpec mistral_spec(const JsonView& json) { return mistral_decoder(json, "model"); }

nn::CausalLMSpec ministral_spec(const JsonView& json) {
  return mistral_decoder(json, "model", /*by_layer_types=*/true);
}

nn::CausalLMSpec ministral3_spec(const JsonView& json) { return ministral3_decoder(json, "model"); }

nn::CausalLMSpec mistral3_spec(const JsonView& json) {
  ConfigReader config(json, "mistral3");
  config.claim({"text_config"});
  const JsonView text = json.at("text_config");
  ConfigReader text_config(text, "mistral3");
  const std::string type = text_config.choice("model_type", "mistral", {"mistral", "ministral3"});
  // text_config decides; absent means false. The file's own key defaults to true, and transformers 5 writes
  // that even for models with a separate head, since it looks for the head's tensor: true there says nothing.
  const bool tied = text_config.flag(kTied, false), may_be_tied = config.flag(kTied, true);
  if (tied && !may_be_tied)
    text_config.fail(kTied, "true contradicts the file's own tie_word_embeddings, which is false");
  config.finish();
  const std::string model = "model.language_model";
  nn::CausalLMSpec spec = type == "mistral" ? mistral_decoder(text, model) : ministral3_decoder(text, model);
  spec.checkpoint_names = llava_names();
  return spec;
}

}  // namespace lorikeet::models
