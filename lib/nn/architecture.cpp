#include "nn/architecture.h"

#include <array>
#include <charconv>

namespace lorikeet::nn {
namespace {

std::string text(const std::string& value) { return value; }
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(std::int64_t value) { return std::to_string(value); }
// The shortest digits that read back equal, whatever the locale.
std::string text(double value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

// Every struct is taken apart by a structured binding: a member that is added to it doesn't compile until
// someone has decided here whether it changes numbers. List a new one only where it isn't off.
class Lines {
 public:
  explicit Lines(std::string prefix) : prefix_(std::move(prefix)) {}

  template <typename Value>
  void add(const std::string& name, const Value& value) {
    lines_.emplace_back(prefix_ + name, text(value));
  }
  template <typename Value>
  void add_unless(const Value& off, const std::string& name, const Value& value) {
    if (value != off) add(name, value);
  }
  const Architecture& lines() const { return lines_; }

 private:
  std::string prefix_;
  Architecture lines_;
};

std::string activation_name(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::kSilu: return "silu";
    case ops::Activation::kGeluTanh: return "gelu_tanh";
    case ops::Activation::kGelu: return "gelu";
    case ops::Activation::kClampedSwiglu: return "clamped_swiglu";
  }
  return "";
}

void add_norm(Lines& lines, const std::string& where, const NormSpec& norm) {
  [[maybe_unused]] const auto& [name, size, eps, unit_offset, kind, bias] = norm;
  lines.add(where + ".eps", eps);
  lines.add_unless(false, where + ".unit_offset", unit_offset);
  if (kind == ops::NormKind::kLayer) lines.add(where + ".kind", std::string("layer"));
  lines.add_unless(false, where + ".bias", bias);
}

void add_norm(Lines& lines, const std::string& where, const std::optional<NormSpec>& norm) {
  if (norm) add_norm(lines, where, *norm);
}

// How the checkpoint's rows are meant. An order that permutes nothing is left out: fused modules then compute
// what separate ones do.
void add_row_orders(Lines& lines, const std::string& name, const std::vector<Module>& modules) {
  for (const Module& module : modules) {
    const auto& [groups, parts, unit] = module.order;
    if (module.order.is_identity()) continue;
    std::string counts;
    for (const std::int64_t part : parts) counts += (counts.empty() ? "" : ",") + text(part);
    lines.add(name, text(groups) + " x (" + counts + ") x " + text(unit));
  }
}

void add_latent(Lines& lines, const LatentSpec& latent) {
  [[maybe_unused]] const auto& [layout, query_rank, key_value_rank, norm_eps, names] = latent;
  [[maybe_unused]] const auto& [heads, plain_dim, rotary_dim, value_dim, interleaved] = layout;
  lines.add("attention.latent.plain_dim", plain_dim);
  lines.add("attention.latent.rotary_dim", rotary_dim);
  lines.add("attention.latent.value_dim", value_dim);
  lines.add_unless(false, "attention.latent.interleaved", interleaved);
  lines.add_unless(std::int64_t{0}, "attention.latent.query_rank", query_rank);
  lines.add("attention.latent.key_value_rank", key_value_rank);
  lines.add("attention.latent.norm.eps", norm_eps);
}

void add_attention(Lines& lines, const AttentionSpec& attention) {
  [[maybe_unused]] const auto& [prefix, hidden_size, layout, qkv_bias, output_bias, options, names, fused_qkv,
                                qk_norm, output_gate, sinks, value_norm_eps, keys_as_values, keys_of,
                                lends_keys, latent] = attention;
  const auto& [heads, kv_heads, head_dim, interleaved] = layout;
  const auto& [scale, causal, window, soft_cap] = options;
  lines.add("attention.heads", heads);
  lines.add("attention.kv_heads", kv_heads);
  lines.add("attention.head_dim", head_dim);
  lines.add_unless(false, "attention.interleaved", interleaved);
  lines.add("attention.scale", scale);
  lines.add_unless(true, "attention.causal", causal);
  lines.add_unless(std::int64_t{0}, "attention.window", window);
  lines.add_unless(0.0, "attention.soft_cap", soft_cap);
  lines.add_unless(false, "attention.qkv_bias", qkv_bias);
  lines.add_unless(false, "attention.output_bias", output_bias);
  lines.add_unless(false, "attention.output_gate", output_gate);
  lines.add_unless(false, "attention.sinks", sinks);
  if (value_norm_eps) lines.add("attention.value_norm.eps", *value_norm_eps);
  lines.add_unless(false, "attention.keys_as_values", keys_as_values);
  if (keys_of) lines.add("attention.keys_of", *keys_of);
  add_row_orders(lines, "attention.qkv_rows", attention.qkv_modules());
  if (latent) add_latent(lines, *latent);
  if (!qk_norm) return;
  for (const auto& [where, norm] :
       {std::pair{"attention.q_norm", &qk_norm->q}, {"attention.k_norm", &qk_norm->k}}) {
    lines.add(std::string(where) + ".size", norm->size);
    add_norm(lines, where, *norm);
  }
}

void add_delta_net(Lines& lines, const GatedDeltaNetSpec& net) {
  [[maybe_unused]] const auto& [prefix, hidden_size, layout, taps, norm_eps, names, fused] = net;
  const auto& [key_heads, value_heads, key_dim, value_dim] = layout;
  lines.add("delta_net.key_heads", key_heads);
  lines.add("delta_net.value_heads", value_heads);
  lines.add("delta_net.key_dim", key_dim);
  lines.add("delta_net.value_dim", value_dim);
  lines.add("delta_net.taps", taps);
  lines.add("delta_net.norm.eps", norm_eps);
  add_row_orders(lines, "delta_net.input_rows", net.input_modules());
  add_row_orders(lines, "delta_net.gate_rows", net.gate_modules());
}

void add_mamba2(Lines& lines, const Mamba2Spec& mamba) {
  [[maybe_unused]] const auto& [prefix, hidden_size, layout, taps, norm_eps, norm_groups, convolution_bias,
                                bias, names] = mamba;
  const auto& [heads, head_dim, groups, state_dim] = layout;
  lines.add("mamba2.heads", heads);
  lines.add("mamba2.head_dim", head_dim);
  lines.add("mamba2.groups", groups);
  lines.add("mamba2.state_dim", state_dim);
  lines.add("mamba2.taps", taps);
  lines.add("mamba2.norm.eps", norm_eps);
  lines.add("mamba2.norm.groups", norm_groups);
  lines.add_unless(false, "mamba2.convolution_bias", convolution_bias);
  lines.add_unless(false, "mamba2.bias", bias);
}

void add_mlp(Lines& lines, const MlpSpec& mlp) {
  [[maybe_unused]] const auto& [prefix, hidden_size, intermediate_size, activation, bias, names,
                                fused_gate_up, gated, by_name_only] = mlp;
  lines.add("mlp.intermediate_size", intermediate_size);
  lines.add("mlp.activation", activation_name(activation));
  lines.add_unless(false, "mlp.bias", bias);
  lines.add_unless(true, "mlp.gated", gated);
  add_row_orders(lines, "mlp.gate_up_rows", mlp.gate_up_modules());
}

void add_experts(Lines& lines, const ExpertsSpec& experts) {
  [[maybe_unused]] const auto& [prefix, hidden_size, intermediate_size, count, router, activation,
                                router_bias, bias, stacks, names, shared, weight_scales, choice_bias,
                                wide_router, branch_norms] = experts;
  const auto& [per_token, normalized, scores, sum_eps, least_sum, scale, groups, groups_per_token,
               group_top] = router;
  lines.add("experts.count", count);
  lines.add("experts.per_token", per_token);
  lines.add("experts.normalized", normalized);
  if (scores == ops::RouterScores::kSigmoid) lines.add("experts.scores", std::string("sigmoid"));
  lines.add_unless(0.0, "experts.sum_eps", sum_eps);
  lines.add_unless(0.0, "experts.least_sum", least_sum);
  lines.add_unless(1.0, "experts.scale", scale);
  if (router.limits_groups()) {
    lines.add("experts.groups", groups);
    lines.add("experts.groups_per_token", groups_per_token);
    lines.add("experts.group_top", group_top);
  }
  lines.add_unless(false, "experts.choice_bias", choice_bias.has_value());
  lines.add_unless(false, "experts.wide_router", wide_router);
  lines.add("experts.intermediate_size", intermediate_size);
  lines.add("experts.activation", activation_name(activation));
  lines.add_unless(false, "experts.router_bias", router_bias);
  lines.add_unless(false, "experts.bias", bias);
  lines.add_unless(false, "experts.weight_scales", !weight_scales.empty());
  if (branch_norms) lines.add("experts.branch_norms.eps", branch_norms->eps);
  if (!shared) return;
  [[maybe_unused]] const auto& [shared_size, name, gate, modules, by_name_only, fused_gate_up] = *shared;
  lines.add("experts.shared.intermediate_size", shared_size);
  lines.add_unless(false, "experts.shared.gated", !gate.empty());
  add_row_orders(lines, "experts.shared.gate_up_rows", experts.shared_mlp().gate_up_modules());
}

Architecture layer_lines(const DecoderLayerSpec& layer, const std::string& prefix) {
  [[maybe_unused]] const auto& [index, attention, delta_net, short_conv, mamba2, mlp, experts, attention_norm,
                                mlp_norm, post_attention_norm, post_mlp_norm, parallel, rotary,
                                residual_multiplier, layer_input, output_scale] = layer;
  Lines lines(prefix);
  if (delta_net) {
    add_delta_net(lines, *delta_net);
  } else if (short_conv) {
    lines.add("short_conv.taps", short_conv->taps);
  } else if (mamba2) {
    add_mamba2(lines, *mamba2);
  } else {
    add_attention(lines, attention);
  }
  if (experts) {
    add_experts(lines, *experts);
  } else {
    add_mlp(lines, mlp);
  }
  add_norm(lines, "attention_norm", attention_norm);
  add_norm(lines, "mlp_norm", mlp_norm);
  add_norm(lines, "post_attention_norm", post_attention_norm);
  add_norm(lines, "post_mlp_norm", post_mlp_norm);
  lines.add_unless(false, "parallel", parallel);
  if (rotary == LayerRotary::kNone && layer.attends()) lines.add("rotary", false);
  if (rotary == LayerRotary::kLocal && layer.attends()) lines.add("rotary", std::string("local"));
  lines.add_unless(1.0, "residual_multiplier", residual_multiplier);
  if (layer_input) {
    lines.add("layer_input.width", layer_input->width);
    lines.add("layer_input.activation", activation_name(layer_input->activation));
    add_norm(lines, "layer_input.norm", layer_input->norm);
  }
  lines.add_unless(false, "output_scale", !output_scale.empty());
  return lines.lines();
}

void add_rotary(Lines& lines, const std::string& name, const RotarySpec& rotary) {
  const auto& [head_dim, rotary_dim, theta, scaling, factor, low_freq_factor, high_freq_factor,
               original_max_position, short_factor, long_factor, attention_factor, beta_fast, beta_slow,
               truncate, query_beta, rotated_pairs] = rotary;
  lines.add(name + ".theta", theta);
  lines.add_unless(head_dim, name + ".dim", rotary_dim);
  if (query_beta != 0) {
    lines.add(name + ".query_beta", query_beta);
    lines.add(name + ".query_length", original_max_position);
  }
  if (scaling == RotarySpec::Scaling::kNone) return;
  if (scaling == RotarySpec::Scaling::kLongrope) {
    lines.add(name + ".scaling", std::string("longrope"));
    lines.add(name + ".original_max_position", original_max_position);
    lines.add(name + ".attention_factor", attention_factor);
    for (std::size_t i = 0; i < short_factor.size(); ++i)
      lines.add(name + ".short_factor " + std::to_string(i), short_factor[i]);
    for (std::size_t i = 0; i < long_factor.size(); ++i)
      lines.add(name + ".long_factor " + std::to_string(i), long_factor[i]);
    return;
  }
  if (scaling == RotarySpec::Scaling::kYarn) {
    lines.add(name + ".scaling", std::string("yarn"));
    lines.add(name + ".factor", factor);
    lines.add(name + ".original_max_position", original_max_position);
    lines.add(name + ".attention_factor", attention_factor);
    lines.add(name + ".beta_fast", beta_fast);
    lines.add(name + ".beta_slow", beta_slow);
    lines.add_unless(true, name + ".truncate", truncate);
    return;
  }
  if (scaling == RotarySpec::Scaling::kProportional) {
    lines.add(name + ".scaling", std::string("proportional"));
    lines.add(name + ".factor", factor);
    lines.add(name + ".rotated_pairs", rotated_pairs);
    return;
  }
  const bool linear = scaling == RotarySpec::Scaling::kLinear;
  lines.add(name + ".scaling", std::string(linear ? "linear" : "llama3"));
  lines.add(name + ".factor", factor);
  if (linear) return;
  lines.add(name + ".low_freq_factor", low_freq_factor);
  lines.add(name + ".high_freq_factor", high_freq_factor);
  lines.add(name + ".original_max_position", original_max_position);
}

void append(Architecture& all, const Architecture& lines) {
  all.insert(all.end(), lines.begin(), lines.end());
}

// Layers that are alike in a row are listed once: "layers 0-3".
void append_layers(Architecture& all, const std::vector<DecoderLayerSpec>& layers) {
  for (std::size_t first = 0, last = 0; first < layers.size(); first = last + 1) {
    const Architecture lines = layer_lines(layers[first], "");
    last = first;
    while (last + 1 < layers.size() && layer_lines(layers[last + 1], "") == lines) ++last;
    append(all,
           layer_lines(layers[first], "layers " + std::to_string(first) + "-" + std::to_string(last) + " "));
  }
}

}  // namespace

Architecture architecture(const CausalLMSpec& spec) {
  [[maybe_unused]] const auto& [shape, embedding_name, embedding_scale, embedding_scale_rounded, padding_id,
                                rotary, local_rotary, layer_inputs, layers, final_norm, head,
                                checkpoint_names] = spec;
  // What the layers' own lines say, what only limits lengths or follows from the rest, and of the embedding
  // what only its gradient knows (padding_id).
  [[maybe_unused]] const auto& [layer_count, hidden_size, heads, kv_heads, head_dim, intermediate_size,
                                vocab_size, max_position, layer_linear_parameters, idle_expert_parameters,
                                output_row_parameters, state_elements, state_space_elements, tied_head] =
      shape;
  [[maybe_unused]] const auto& [head_name, head_hidden_size, head_vocab_size, soft_cap, scale] = head;
  Lines lines("");
  lines.add("hidden_size", hidden_size);
  lines.add("vocab_size", vocab_size);
  lines.add_unless(false, "tied_head", tied_head);
  lines.add_unless(1.0, "embedding_scale", embedding_scale);
  lines.add_unless(false, "embedding_scale_rounded", embedding_scale_rounded);
  if (rotary) add_rotary(lines, "rotary", *rotary);
  if (local_rotary) add_rotary(lines, "local_rotary", *local_rotary);
  if (layer_inputs) {
    lines.add("layer_inputs.vocab_size", layer_inputs->vocab_size);
    add_norm(lines, "layer_inputs.norm", layer_inputs->norm);
  }
  add_norm(lines, "final_norm", final_norm);
  lines.add_unless(0.0, "head.soft_cap", soft_cap);
  lines.add_unless(1.0, "head.scale", scale);
  Architecture all = lines.lines();
  append_layers(all, layers);
  return all;
}

}  // namespace lorikeet::nn
