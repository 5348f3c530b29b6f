#include "models/gemma4/gemma4.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/experts.h"
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
  // The class knows experts, and per-layer inputs, which are on where a file says nothing of them.
  bool has_inputs_and_experts;
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

// Of layers with a window and of those without: one size each, since each kind has one rotary table.
struct LayerHeads {
  Heads sliding, full;
};

// What the text model has beside its sizes.
struct Gemma4Settings {
  double eps;
  bool bias;
  bool keys_as_values;                // in layers without a window
  std::vector<std::int64_t> windows;  // of each layer, 0 for none
  LayerHeads heads;
  std::int64_t own_keys;     // so many first layers have keys and values of their own
  bool double_wide;          // MLPs of the others are twice as wide
  std::int64_t input_width;  // of layers' inputs, 0 for none
  std::int64_t input_vocab_size;
  std::optional<nn::ExpertsSpec> experts;  // beside each MLP; without names

  bool is_full(std::int64_t layer) const { return windows[static_cast<std::size_t>(layer)] == 0; }
  // The last layer of the same kind with keys of its own.
  std::int64_t keys_of(std::int64_t layer) const {
    std::int64_t maker = own_keys - 1;
    while (maker >= 0 && is_full(maker) != is_full(layer)) --maker;
    return maker;
  }
};

// Nothing where they are off, whatever the other keys say.
std::optional<nn::ExpertsSpec> read_gemma4_experts(ConfigReader& config, const DecoderSizes& sizes) {
  if (!config.flag("enable_moe_block", false)) {
    config.claim({"num_experts"});
    return std::nullopt;
  }
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (!config.has(key)) config.fail(key, "is missing, but enable_moe_block asks for experts");
  }
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 0,
                                          .per_token = 0,
                                          .width_key = "moe_intermediate_size",
                                          .width = 0,
                                          .normalized = true,
                                          .reads_normalized = false,
                                          .per_token_key = "top_k_experts"});
  experts.activation = ops::Activation::kGeluTanh;
  return experts;
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

Gemma4Settings read_settings(ConfigReader& config, const DecoderSizes& sizes, const Form& form) {
  Gemma4Settings s{};
  s.eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-6;
  config.choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  s.bias = config.flag("attention_bias", false);
  // Images alone would be seen from both sides by "vision".
  config.choice("use_bidirectional_attention", "vision", {"vision"});
  if (form.has_inputs_and_experts) {
    s.experts = read_gemma4_experts(config, sizes);
  } else {
    config.require_flag("enable_moe_block", false, "the class of this model has no experts");
    config.claim({"num_experts", "hidden_size_per_layer_input"});  // which it takes no notice of
  }
  s.keys_as_values = config.flag("attention_k_eq_v", false);
  s.windows = read_layer_windows(config, sizes);
  s.heads = read_heads(config, sizes, s.windows, s.keys_as_values);
  const char* const shared = "num_kv_shared_layers";
  s.own_keys = sizes.layers - config.count_or(shared, sizes.layers - 1, 0);
  s.double_wide = config.flag("use_double_wide_mlp", false);
  for (std::int64_t i = s.own_keys; i < sizes.layers; ++i) {
    if (s.keys_of(i) < 0) {
      config.fail(shared, std::string("leaves layers with ") + (s.is_full(i) ? kFull : kSliding) +
                              " no earlier one of their kind whose keys they could read");
    }
  }
  if (!form.has_inputs_and_experts) return s;
  s.input_width = config.count_or("hidden_size_per_layer_input", kLargestWidth / sizes.layers, 256);
  s.input_vocab_size = config.size_or("vocab_size_per_layer_input", kLargestVocabulary, 262144);
  if (s.input_width > 0 && s.input_vocab_size < sizes.vocab_size) {
    config.fail("vocab_size_per_layer_input", "expected at least vocab_size, " +
                                                  std::to_string(sizes.vocab_size) + ", got " +
                                                  std::to_string(s.input_vocab_size));
  }
  return s;
}

// Puts the experts beside the layer's MLP.
void add_experts(nn::DecoderLayerSpec& layer, const nn::ExpertsSpec& experts, const std::string& prefix,
                 double eps) {
  const auto norm = [&](const char* name) { return prefix + name; };
  layer.mlp_norm.reset();
  layer.experts = experts;
  layer.experts->prefix = prefix;
  layer.experts->names.router = "router.proj";
  layer.experts->shared =
      nn::SharedExpertSpec{.intermediate_size = layer.mlp.intermediate_size, .name = "mlp", .gate = ""};
  layer.experts->weight_scales = prefix + ".router.per_expert_scale";
  layer.experts->branch_norms = nn::BranchNorms{.mlp_input = norm(".pre_feedforward_layernorm"),
                                                .mlp_output = norm(".post_feedforward_layernorm_1"),
                                                .experts_input = norm(".pre_feedforward_layernorm_2"),
                                                .experts_output = norm(".post_feedforward_layernorm_2"),
                                                .router_scale = prefix + ".router.scale",
                                                .eps = eps};
}

nn::DecoderLayerSpec gemma4_layer(const DecoderSizes& sizes, const Gemma4Settings& s, std::int64_t index,
                                  const std::string& model) {
  const std::string prefix = model + ".layers." + std::to_string(index);
  const double eps = s.eps;
  nn::DecoderLayerSpec layer = llama_layer(sizes, eps, index, model + ".layers");
  const auto norm = [&](const std::string& name) {
    return nn::NormSpec{prefix + name, sizes.hidden_size, eps};
  };
  layer.post_attention_norm = norm(".post_attention_layernorm");
  layer.mlp_norm = norm(".pre_feedforward_layernorm");
  layer.post_mlp_norm = norm(".post_feedforward_layernorm");
  layer.output_scale = prefix + ".layer_scalar";
  layer.mlp.activation = ops::Activation::kGeluTanh;
  if (s.input_width > 0) {
    layer.layer_input = nn::LayerInputSpec{.prefix = prefix,
                                           .hidden_size = sizes.hidden_size,
                                           .width = s.input_width,
                                           .activation = layer.mlp.activation,
                                           .norm = norm(".post_per_layer_input_norm")};
  }
  nn::AttentionSpec& attention = layer.attention;
  const bool full = s.is_full(index);
  const Heads& heads = full ? s.heads.full : s.heads.sliding;
  attention.layout = {sizes.heads, heads.kv_heads, heads.head_dim};
  attention.options.scale = 1;
  attention.options.window = s.windows[static_cast<std::size_t>(index)];
  attention.qkv_bias = attention.output_bias = s.bias;
  attention.qk_norm = head_norms(attention, eps);
  attention.value_norm_eps = eps;
  layer.rotary = full ? nn::LayerRotary::kGlobal : nn::LayerRotary::kLocal;
  if (index < s.own_keys) {
    attention.keys_as_values = full && s.keys_as_values;
    for (std::int64_t reader = s.own_keys; reader < sizes.layers; ++reader)
      attention.lends_keys = attention.lends_keys || s.keys_of(reader) == index;
  } else {
    attention.keys_of = s.keys_of(index);
    if (s.double_wide) layer.mlp.intermediate_size *= 2;
  }
  if (s.experts) add_experts(layer, *s.experts, prefix, eps);
  return layer;
}

// By the text model's settings; its weights' names begin with `model`.
nn::CausalLMSpec gemma4_decoder(ConfigReader& config, const Form& form, const std::string& model) {
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, defaults_of(form));
  const Gemma4Settings s = read_settings(config, sizes, form);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_table(config, kFull, s.heads.full.head_dim), s.eps, model);
  if (std::any_of(s.windows.begin(), s.windows.end(), [](std::int64_t window) { return window > 0; }))
    spec.local_rotary = read_table(config, kSliding, sizes.head_dim);
  spec.head.soft_cap =
      config.has("final_logit_softcapping") ? config.positive("final_logit_softcapping", 1e6) : 0;
  spec.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden_size));
  spec.embedding_scale_rounded = true;
  if (s.input_width > 0) {
    spec.layer_inputs =
        nn::LayerInputsSpec{.table = model + ".embed_tokens_per_layer",
                            .vocab_size = s.input_vocab_size,
                            .projection = model + ".per_layer_model_projection",
                            .norm = {model + ".per_layer_projection_norm", s.input_width, s.eps},
                            .hidden_size = sizes.hidden_size,
                            .layers = sizes.layers};
  }
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) spec.layers.push_back(gemma4_layer(sizes, s, i, model));
  if (s.experts) spec.shape.intermediate_size += s.experts->router.per_token * s.experts->intermediate_size;
  return spec;
}

// Files have the experts of a layer in one tensor.
std::vector<io::CheckpointNames::ExpertStack> stacks_of(const nn::CausalLMSpec& spec) {
  if (!spec.layers.front().experts) return {};
  return gate_up_stacks(/*transposed=*/false);
}

// Towers, and what published files have of layers that read another's keys, where no class reads it.
std::vector<std::string> other_parts(const nn::CausalLMSpec& spec) {
  std::vector<std::string> parts{"model.vision_tower.", "model.audio_tower.", "model.embed_vision.",
                                 "model.embed_audio.", "model.vision_embedder."};
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    if (!layer.attention.keys_of) continue;
    for (const char* model : {"model.layers.", "model.language_model.layers."}) {
      for (const char* name : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
        parts.push_back(model + std::to_string(layer.index) + ".self_attn." + name);
    }
  }
  return parts;
}

nn::CausalLMSpec text_spec(const JsonView& json, const Form& form) {
  ConfigReader config(json, form.text);
  nn::CausalLMSpec spec = gemma4_decoder(config, form, "model");
  // The language model of a multimodal checkpoint that someone took the towers off.
  spec.checkpoint_names = {.prefixes = {{"model.", "model.language_model."}},
                           .expert_stacks = stacks_of(spec),
                           .other_parts = other_parts(spec)};
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
  spec.checkpoint_names = {.prefixes = {{"model.language_model.", "model."}},
                           .expert_stacks = stacks_of(spec),
                           .other_parts = other_parts(spec)};
  return spec;
}

}  // namespace

nn::CausalLMSpec gemma4_text_spec(const JsonView& json) { return text_spec(json, gemma4_form()); }

nn::CausalLMSpec gemma4_unified_text_spec(const JsonView& json) { return text_spec(json, unified_form()); }

nn::CausalLMSpec gemma4_spec(const JsonView& json) { return multimodal_spec(json, gemma4_form()); }

nn::CausalLMSpec gemma4_unified_spec(const JsonView& json) { return multimodal_spec(json, unified_form()); }

}  // namespace lorikeet::models
