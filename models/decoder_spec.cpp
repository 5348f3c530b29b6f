#include "models/decoder_spec.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace lorikeet::models {
namespace {

// Linear scaling reaches beyond max_position_embeddings, which stays that of pretraining. With YaRN it is
// either (Qwen 2.5, to whose files users add the scaling), or the scaled one already (Olmo 3). That of the
// other kinds is the scaled one.
std::int64_t positions(const DecoderSizes& sizes, const nn::RotarySpec& rotary) {
  constexpr double kMost = 1e15;  // exact as a double, and far beyond any text
  const auto written = static_cast<double>(sizes.max_position);
  double reached = written;
  if (rotary.scaling == nn::RotarySpec::Scaling::kLinear) reached = written * rotary.factor;
  if (rotary.scaling == nn::RotarySpec::Scaling::kYarn)
    reached = rotary.original_max_position * rotary.factor;
  return static_cast<std::int64_t>(std::min(std::max(reached, written), kMost));
}

}  // namespace

nn::CausalLMSpec decoder_spec(const DecoderSizes& s, const nn::RotarySpec& rotary, double norm_eps,
                              const std::string& model) {
  return {.shape = {.layers = s.layers,
                    .hidden_size = s.hidden_size,
                    .heads = s.heads,
                    .kv_heads = s.kv_heads,
                    .head_dim = s.head_dim,
                    .intermediate_size = s.intermediate_size,
                    .vocab_size = s.vocab_size,
                    .max_position = positions(s, rotary),
                    .tied_head = s.tied_head},
          .embedding_name = model + ".embed_tokens",
          .padding_id = s.padding_id,
          .rotary = rotary,
          .final_norm = {model + ".norm", s.hidden_size, norm_eps},
          .head = {.hidden_size = s.hidden_size, .vocab_size = s.vocab_size}};
}

nn::DecoderLayerSpec llama_layer(const DecoderSizes& s, double norm_eps, std::int64_t index,
                                 const std::string& prefix) {
  const std::string layer = prefix + "." + std::to_string(index);
  return {.index = index,
          .attention = {.prefix = layer + ".self_attn",
                        .hidden_size = s.hidden_size,
                        .layout = {s.heads, s.kv_heads, s.head_dim},
                        .options = {.scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim))}},
          .mlp = {.prefix = layer + ".mlp",
                  .hidden_size = s.hidden_size,
                  .intermediate_size = s.intermediate_size},
          .attention_norm = nn::NormSpec{layer + ".input_layernorm", s.hidden_size, norm_eps},
          .mlp_norm = nn::NormSpec{layer + ".post_attention_layernorm", s.hidden_size, norm_eps}};
}

nn::DecoderLayerSpec post_norm_layer(const DecoderSizes& sizes, double norm_eps, std::int64_t index) {
  const std::string prefix = "model.layers." + std::to_string(index);
  nn::DecoderLayerSpec layer = llama_layer(sizes, norm_eps, index);
  layer.attention_norm.reset();
  layer.mlp_norm.reset();
  layer.post_attention_norm = nn::NormSpec{prefix + ".post_attention_layernorm", sizes.hidden_size, norm_eps};
  layer.post_mlp_norm = nn::NormSpec{prefix + ".post_feedforward_layernorm", sizes.hidden_size, norm_eps};
  return layer;
}

nn::NormSpec layer_norm(const std::string& name, const DecoderSizes& sizes, double eps, bool bias) {
  return {name, sizes.hidden_size, eps, /*unit_offset=*/false, ops::NormKind::kLayer, bias};
}

nn::QkNormSpec head_norms(const nn::AttentionSpec& attention, double eps, bool unit_offset) {
  const std::int64_t size = attention.layout.head_dim;
  return {{attention.prefix + ".q_norm", size, eps, unit_offset},
          {attention.prefix + ".k_norm", size, eps, unit_offset}};
}

nn::QkNormSpec whole_norms(const nn::AttentionSpec& attention, double eps) {
  const ops::HeadLayout& layout = attention.layout;
  return {{attention.prefix + ".q_norm", layout.heads * layout.head_dim, eps},
          {attention.prefix + ".k_norm", layout.kv_heads * layout.head_dim, eps}};
}

std::vector<JsonView> of_each_layer(ConfigReader& config, const char* key, const DecoderSizes& sizes) {
  config.claim({key});
  auto items = config.view().at(key).items();
  if (std::ssize(items) != sizes.layers) {
    config.fail(key, "expected one for each of num_hidden_layers " + std::to_string(sizes.layers) + ", got " +
                         std::to_string(items.size()));
  }
  return items;
}

void set_layers(std::vector<bool>& layers, ConfigReader& config, const char* key) {
  config.claim({key});
  for (const JsonView& item : config.view().at(key).items()) {
    const std::int64_t layer = item.as_int();
    if (layer < 0 || layer >= std::ssize(layers)) {
      config.fail(
          key, "expected layers below " + std::to_string(layers.size()) + ", got " + std::to_string(layer));
    }
    layers[static_cast<std::size_t>(layer)] = true;
  }
}

bool read_whether_windowed(ConfigReader& config) {
  if (config.view().json().find("sliding_window") == nullptr)
    config.fail("sliding_window", "is missing; expected the size of the window, or null for none");
  return config.has("sliding_window");
}

std::function<bool(std::int64_t)> all_but_every(std::int64_t interval) {
  return [interval](std::int64_t layer) { return (layer + 1) % interval != 0; };
}

std::vector<std::int64_t> read_windows(ConfigReader& config, const DecoderSizes& sizes,
                                       const std::function<bool(std::int64_t)>& windowed) {
  std::vector<bool> slides;
  if (config.has("layer_types")) {
    for (const JsonView& type : of_each_layer(config, "layer_types", sizes)) {
      const std::string& name = type.as_string();
      if (name != "sliding_attention" && name != "full_attention") {
        config.fail("layer_types",
                    "expected sliding_attention or full_attention, got '" + escape_control(name) + "'");
      }
      slides.push_back(name == "sliding_attention");
    }
  } else {
    for (std::int64_t i = 0; i < sizes.layers; ++i) slides.push_back(windowed(i));
  }
  std::vector<std::int64_t> windows(slides.size(), 0);
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) {
    config.claim({"sliding_window"});
    return windows;
  }
  if (!config.has("sliding_window"))
    config.fail("sliding_window", "is missing, but layers slide; expected the size of their window");
  const std::int64_t window = config.size("sliding_window", kMostPositions);
  for (std::size_t i = 0; i < slides.size(); ++i) windows[i] = slides[i] ? window : 0;
  return windows;
}

std::int64_t read_further_layers(ConfigReader& config) {
  return std::max(config.count_or("num_nextn_predict_layers", kMostLayers, 1),
                  config.count_or("num_mtp_layers", kMostLayers, 1));
}

void leave_out_further_layers(nn::CausalLMSpec& spec, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    spec.checkpoint_names.other_parts.push_back("model.layers." + std::to_string(spec.shape.layers + i) +
                                                ".");
  }
}

ops::Activation read_activation(ConfigReader& config, const char* key, const std::string& fallback,
                                std::initializer_list<std::string_view> known) {
  const std::string name = config.choice(key, fallback, known);
  if (name == "silu") return ops::Activation::kSilu;
  // What transformers calls "gelu" is exact; these are one formula with tanh.
  const bool tanh = name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh";
  return tanh ? ops::Activation::kGeluTanh : ops::Activation::kGelu;
}

void count_linear_parameters(nn::CausalLMSpec& spec) {
  nn::ModelShape& shape = spec.shape;
  shape.layer_linear_parameters = shape.idle_expert_parameters = 0;
  shape.state_elements = shape.state_space_elements = 0;
  if (const auto& inputs = spec.layer_inputs) {
    const nn::GroupSpec group = inputs->projection_group();
    shape.layer_linear_parameters += group.out_features() * group.in_features;
  }
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    const auto parameters = [](const nn::GroupSpec& group) {
      return group.out_features() * group.in_features;
    };
    for (const nn::GroupSpec& group : layer.mixer_inputs())
      shape.layer_linear_parameters += parameters(group);
    if (layer.delta_net) shape.state_elements += layer.delta_net->layout.state_elements();
    if (layer.mamba2) shape.state_space_elements += layer.mamba2->layout.state_elements();
    std::int64_t behind_attention = parameters(layer.mixer_output());
    std::int64_t idle = 0;
    if (const auto& experts = layer.experts) {
      behind_attention += experts->parameters();
      idle = experts->parameters_of(experts->count - experts->router.per_token);
    } else {
      for (const nn::Module& module : layer.mlp.gate_up_modules())
        behind_attention += module.out_features * layer.mlp.hidden_size;
      behind_attention += layer.mlp.intermediate_size * layer.mlp.hidden_size;
    }
    if (layer.layer_input) behind_attention += layer.layer_input->parameters();
    shape.layer_linear_parameters += behind_attention;
    shape.idle_expert_parameters += idle;
    shape.output_row_parameters = behind_attention - idle;  // ends as the last layer's
  }
}

}  // namespace lorikeet::models
