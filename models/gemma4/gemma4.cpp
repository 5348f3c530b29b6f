#include "models/gemma4/gemma4.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/multimodal.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// What the classes of a multimodal file and of its text model are called, and where the text models differ.
struct Form {
  std::string file, text;
  std::int64_t max_position;
  bool has_layer_inputs;  // the class knows per-layer inputs, which are on where a file says nothing of them
};

Form gemma4_form() { return {"gemma4", "gemma4_text", 131072, true}; }
Form unified_form() { return {"gemma4_unified", "gemma4_unified_text", 262144, false}; }

// What a file leaves out; transformers has the same defaults.
DecoderSizes defaults_of(const Form& form) {
  return {.vocab_size = 262144,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .layers = 30,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .max_position = form.max_position,
          .tied_head = true,
          .padding_id = 0};
}

// Heads of a kind of layers.
struct Heads {
  std::int64_t kv_heads, head_dim;
  bool operator==(const Heads&) const = default;
};

// The number that a file must not have: 0, or absent where that means 0.
void require_none(ConfigReader& config, const char* key, std::int64_t absent, const std::string& what) {
  config.claim({key});
  const std::int64_t count = config.view().get_int(key, absent);
  if (count == 0) return;
  config.fail(key, "expected 0, got " + std::to_string(count) +
                       (config.has(key) ? "" : ", which is what an absent key stands for") + "; " + what +
                       " are not supported");
}

void require_dense(ConfigReader& config, const Form& form) {
  require_none(config, "num_kv_shared_layers", 0, "layers that share keys and values");
  if (form.has_layer_inputs)
    require_none(config, "hidden_size_per_layer_input", 256, "per-layer inputs (E2B, E4B)");
  config.require_flag("enable_moe_block", false, "a model without experts was expected");
  config.claim({"num_experts"});  // has no effect without enable_moe_block
}

// As published: numbers for all layers without a window.
Heads read_global_heads(ConfigReader& config, const DecoderSizes& sizes, bool keys_as_values) {
  const std::int64_t head_dim = config.size_or("global_head_dim", kLargestWidth, 512);
  // transformers takes no notice of their number of key heads elsewhere.
  if (!keys_as_values) return {sizes.kv_heads, head_dim};
  return {config.size_or("num_global_key_value_heads", kLargestWidth, sizes.kv_heads), head_dim};
}

// As transformers 5.23 writes them: {"5": {"head_dim": 512, "num_key_value_heads": 4}} of each layer that
// differs from the whole file's numbers.
std::vector<Heads> read_listed_heads(ConfigReader& config, const DecoderSizes& sizes) {
  const char* const key = "per_layer_config";
  std::vector<Heads> heads(static_cast<std::size_t>(sizes.layers), {sizes.kv_heads, sizes.head_dim});
  for (const auto& [name, layer] : config.view().at(key).members()) {
    std::int64_t index = -1;
    const char* const end = name.data() + name.size();
    const auto [parsed, error] = std::from_chars(name.data(), end, index);
    if (error != std::errc() || parsed != end || index < 0 || index >= sizes.layers) {
      config.fail(key, "expected indices of layers from 0 to " + std::to_string(sizes.layers - 1) +
                           ", got '" + escape_control(name) + "'");
    }
    ConfigReader own(layer, config.family());
    for (const auto& [setting, value] : layer.members()) {
      if (setting != "head_dim" && setting != "num_key_value_heads")
        own.fail(setting, "expected head_dim and num_key_value_heads alone");
    }
    Heads& of_layer = heads[static_cast<std::size_t>(index)];
    of_layer.head_dim = own.size_or("head_dim", kLargestWidth, of_layer.head_dim);
    of_layer.kv_heads = own.size_or("num_key_value_heads", kLargestWidth, of_layer.kv_heads);
  }
  return heads;
}

// Of layers with a window and of those without: one size each, since each kind has one rotary table.
struct LayerHeads {
  Heads sliding, full;
};

LayerHeads read_heads(ConfigReader& config, const DecoderSizes& sizes,
                      const std::vector<std::int64_t>& windows, bool keys_as_values) {
  const char* const key = "per_layer_config";
  LayerHeads heads{.sliding = {sizes.kv_heads, sizes.head_dim}, .full = {}};
  if (!config.has(key)) {
    heads.full = read_global_heads(config, sizes, keys_as_values);
  } else {
    const std::vector<Heads> listed = read_listed_heads(config, sizes);
    heads.full = listed.back();  // which has no window
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (listed[i] != (windows[i] > 0 ? heads.sliding : heads.full)) {
        config.fail(key, "expected the sizes of heads of layer " + std::to_string(i) + " to be those of " +
                             (windows[i] > 0 ? "the whole file, since it has a window"
                                             : "the last layer, which has no window either"));
      }
    }
  }
  DecoderSizes full = sizes;
  full.kv_heads = heads.full.kv_heads;
  full.head_dim = heads.full.head_dim;
  require_consistent(config, full);
  return heads;
}

std::vector<std::int64_t> read_layer_windows(ConfigReader& config, const DecoderSizes& sizes) {
  const auto by_sixes = all_but_every(6);
  auto windows = read_windows(
      config, sizes, [&](std::int64_t layer) { return by_sixes(layer) && layer + 1 < sizes.layers; });
  if (windows.back() > 0) {
    config.fail("layer_types", std::string("expected the last layer to be ") + kFull +
                                   ", which transformers makes of it whatever the file says");
  }
  return windows;
}

// The table of a kind of layers; the settings of transformers' class where the file has none.
nn::RotarySpec read_table(ConfigReader& config, const char* layer_type, std::int64_t head_dim) {
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) {
    if (config.has(key))
      config.fail(key, "has no meaning for this family; rope_parameters has the settings of each layer type");
  }
  if (config.has("rope_parameters"))
    return read_rope(config, head_dim, {.layer_type = layer_type, .scaled = false, .proportional = true});
  nn::RotarySpec spec{.head_dim = head_dim, .rotary_dim = head_dim};
  if (layer_type != std::string(kFull)) return spec;
  spec.theta = 1e6;
  spec.scaling = nn::RotarySpec::Scaling::kProportional;
  spec.rotated_pairs = head_dim / 8;
  return spec;
}

nn::DecoderLayerSpec gemma4_layer(const DecoderSizes& sizes, double eps, std::int64_t index,
                                  const std::string& model) {
  const std::string prefix = model + ".layers." + std::to_string(index);
  nn::DecoderLayerSpec layer = llama_layer(sizes, eps, index, model + ".layers");
  const auto norm = [&](const std::string& name) {
    return nn::NormSpec{prefix + name, sizes.hidden_size, eps};
  };
  layer.post_attention_norm = norm(".post_attention_layernorm");
  layer.mlp_norm = norm(".pre_feedforward_layernorm");
  layer.post_mlp_norm = norm(".post_feedforward_layernorm");
  layer.output_scale = prefix + ".layer_scalar";
  layer.attention.options.scale = 1;
  layer.attention.value_norm_eps = eps;
  layer.mlp.activation = ops::Activation::kGeluTanh;
  return layer;
}

// By the text model's settings; its weights' names begin with `model`.
nn::CausalLMSpec gemma4_decoder(ConfigReader& config, const Form& form, const std::string& model) {
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, defaults_of(form));
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-6;
  config.choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  const bool bias = config.flag("attention_bias", false);
  // Images alone would be seen from both sides by "vision".
  config.choice("use_bidirectional_attention", "vision", {"vision"});
  require_dense(config, form);
  const bool keys_as_values = config.flag("attention_k_eq_v", false);
  const auto windows = read_layer_windows(config, sizes);
  const LayerHeads heads = read_heads(config, sizes, windows, keys_as_values);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_table(config, kFull, heads.full.head_dim), eps, model);
  if (std::any_of(windows.begin(), windows.end(), [](std::int64_t window) { return window > 0; }))
    spec.local_rotary = read_table(config, kSliding, sizes.head_dim);
  spec.head.soft_cap =
      config.has("final_logit_softcapping") ? config.positive("final_logit_softcapping", 1e6) : 0;
  spec.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden_size));
  spec.embedding_scale_rounded = true;
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = gemma4_layer(sizes, eps, i, model);
    nn::AttentionSpec& attention = layer.attention;
    attention.options.window = windows[static_cast<std::size_t>(i)];
    const bool full = attention.options.window == 0;
    const Heads& own = full ? heads.full : heads.sliding;
    attention.layout = {sizes.heads, own.kv_heads, own.head_dim};
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = head_norms(attention, eps);
    attention.keys_as_values = full && keys_as_values;
    layer.rotary = full ? nn::LayerRotary::kGlobal : nn::LayerRotary::kLocal;
    spec.layers.push_back(layer);
  }
  return spec;
}

std::vector<std::string> other_parts() {
  return {"model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
          "model.vision_embedder."};
}

nn::CausalLMSpec text_spec(const JsonView& json, const Form& form) {
  ConfigReader config(json, form.text);
  nn::CausalLMSpec spec = gemma4_decoder(config, form, "model");
  // The language model of a multimodal checkpoint that someone took the towers off.
  spec.checkpoint_names = {.prefixes = {{"model.", "model.language_model."}}, .other_parts = other_parts()};
  return spec;
}

nn::CausalLMSpec multimodal_spec(const JsonView& json, const Form& form) {
  ConfigReader file(json, form.file);
  file.claim({"text_config"});
  ConfigReader text(json.at("text_config"), form.text);
  text.choice("model_type", form.text, {form.text});
  require_one_tie(file, text);
  file.finish();
  nn::CausalLMSpec spec = gemma4_decoder(text, form, "model.language_model");
  // The class of the text model alone calls its modules so, and PEFT's adapters on it.
  spec.checkpoint_names = {.prefixes = {{"model.language_model.", "model."}}, .other_parts = other_parts()};
  return spec;
}

}  // namespace

nn::CausalLMSpec gemma4_text_spec(const JsonView& json) { return text_spec(json, gemma4_form()); }

nn::CausalLMSpec gemma4_unified_text_spec(const JsonView& json) { return text_spec(json, unified_form()); }

nn::CausalLMSpec gemma4_spec(const JsonView& json) { return multimodal_spec(json, gemma4_form()); }

nn::CausalLMSpec gemma4_unified_spec(const JsonView& json) { return multimodal_spec(json, unified_form()); }

}  // namespace lorikeet::models
