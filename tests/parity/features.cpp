#include "parity/features.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace lorikeet::test {
namespace {

using nn::CausalLMSpec;
using nn::DecoderLayerSpec;
using nn::LayerRotary;
using Scaling = nn::RotarySpec::Scaling;

// A feature of layers: `changed` takes it out of a layer that has it, and says whether it did.
Feature of_layers(const std::string& name, const std::function<bool(DecoderLayerSpec&)>& changed) {
  const auto each = [changed](CausalLMSpec& spec) {
    bool any = false;
    for (DecoderLayerSpec& layer : spec.layers) any = changed(layer) || any;
    return any;
  };
  return {name,
          [each](const CausalLMSpec& spec) {
            CausalLMSpec copy = spec;
            return each(copy);
          },
          [each](CausalLMSpec& spec) { each(spec); }};
}

// A feature that is a value other than `off`.
template <typename Value>
Feature of_value(const std::string& name, Value& (*value)(CausalLMSpec&), const Value& off) {
  return {name,
          [=](const CausalLMSpec& spec) {
            CausalLMSpec copy = spec;
            return value(copy) != off;
          },
          [=](CausalLMSpec& spec) { value(spec) = off; }};
}

template <typename Value>
std::function<bool(DecoderLayerSpec&)> set(Value& (*value)(DecoderLayerSpec&), const Value& off) {
  return [=](DecoderLayerSpec& layer) {
    if (value(layer) == off) return false;
    value(layer) = off;
    return true;
  };
}

template <typename Value>
bool drop(std::optional<Value>& value) {
  const bool had = value.has_value();
  value.reset();
  return had;
}

// All norms of a layer before and behind its blocks.
std::vector<nn::NormSpec*> norms(DecoderLayerSpec& layer) {
  std::vector<nn::NormSpec*> all;
  for (auto* norm :
       {&layer.attention_norm, &layer.mlp_norm, &layer.post_attention_norm, &layer.post_mlp_norm})
    if (*norm) all.push_back(&**norm);
  return all;
}

bool each_norm(DecoderLayerSpec& layer, const std::function<bool(nn::NormSpec&)>& change) {
  bool any = false;
  for (nn::NormSpec* norm : norms(layer)) any = change(*norm) || any;
  return any;
}

Feature of_rotary(const std::string& name, const std::function<bool(nn::RotarySpec&)>& changed) {
  return {name,
          [=](const CausalLMSpec& spec) {
            auto copy = spec.rotary;
            return copy && changed(*copy);
          },
          [=](CausalLMSpec& spec) { changed(*spec.rotary); }};
}

// A feature of YaRN that is a value other than `off`.
template <typename Value>
Feature of_yarn(const std::string& name, Value nn::RotarySpec::*value, Value off) {
  return of_rotary(name, [=](nn::RotarySpec& rotary) {
    return rotary.scaling == Scaling::kYarn && std::exchange(rotary.*value, off) != off;
  });
}

std::function<bool(nn::RotarySpec&)> of_longrope(void (*change)(nn::RotarySpec&)) {
  return [=](nn::RotarySpec& rotary) {
    if (rotary.scaling == Scaling::kLongrope) change(rotary);
    return rotary.scaling == Scaling::kLongrope;
  };
}

bool plain_scale(DecoderLayerSpec& layer) {
  double& scale = layer.attention.options.scale;
  const double plain = 1 / std::sqrt(static_cast<double>(layer.attention.layout.head_dim));
  return std::exchange(scale, plain) != plain;
}

bool one_row_group(DecoderLayerSpec& layer) {
  auto& fused = layer.attention.fused_qkv;
  return fused && std::exchange(fused->row_groups, 1) != 1;
}

bool plain_head_norms(DecoderLayerSpec& layer) {
  auto& norms = layer.attention.qk_norm;
  if (!norms) return false;
  const bool q = std::exchange(norms->q.unit_offset, false), k = std::exchange(norms->k.unit_offset, false);
  return q || k;
}

// As many key heads as value heads, each narrower, so that the same rows are divided otherwise.
bool own_key_heads(DecoderLayerSpec& layer) {
  if (!layer.delta_net) return false;
  ops::DeltaLayout& layout = layer.delta_net->layout;
  const std::int64_t shared = layout.value_heads / std::exchange(layout.key_heads, layout.value_heads);
  layout.key_dim /= shared;
  return shared > 1;
}

bool default_delta_eps(DecoderLayerSpec& layer) {
  constexpr double kDefault = 1e-6;
  return layer.delta_net && std::exchange(layer.delta_net->norm_eps, kDefault) != kDefault;
}

// A value of Mamba 2 layers other than `off`.
template <typename Value>
std::function<bool(DecoderLayerSpec&)> of_mamba2(Value nn::Mamba2Spec::*value, const Value& off) {
  return [=](DecoderLayerSpec& layer) {
    return layer.mamba2 && std::exchange((*layer.mamba2).*value, off) != off;
  };
}

// One group that is as wide as all.
bool one_state_space_group(DecoderLayerSpec& layer) {
  if (!layer.mamba2) return false;
  ops::StateSpaceLayout& layout = layer.mamba2->layout;
  const std::int64_t groups = std::exchange(layout.groups, 1);
  layout.state_dim *= groups;
  return groups > 1;
}

bool rms_norms(DecoderLayerSpec& layer) {
  return each_norm(layer, [](nn::NormSpec& norm) {
    return std::exchange(norm.kind, ops::NormKind::kRms) != ops::NormKind::kRms;
  });
}

bool unbiased_norms(DecoderLayerSpec& layer) {
  return each_norm(layer, [](nn::NormSpec& norm) { return std::exchange(norm.bias, false); });
}

bool without_unit_offset(DecoderLayerSpec& layer) {
  return each_norm(layer, [](nn::NormSpec& norm) { return std::exchange(norm.unit_offset, false); });
}

bool in_sequence(DecoderLayerSpec& layer) {
  if (!layer.parallel || !layer.mlp_norm) return false;
  layer.parallel = false;
  return true;
}

bool one_parallel_norm(DecoderLayerSpec& layer) { return layer.parallel && drop(layer.mlp_norm); }

bool global_rotary(DecoderLayerSpec& layer, LayerRotary instead_of) {
  if (layer.rotary != instead_of) return false;
  layer.rotary = LayerRotary::kGlobal;
  return true;
}

// A model that rotates nothing gets a table.
Feature of_layers_without_rotary() {
  const auto without = [](const DecoderLayerSpec& layer) {
    return layer.rotary == LayerRotary::kNone && layer.attends();
  };
  return {
      "layers without rotary",
      [=](const CausalLMSpec& spec) { return std::any_of(spec.layers.begin(), spec.layers.end(), without); },
      [](CausalLMSpec& spec) {
        const std::int64_t head_dim = spec.shape.head_dim;
        if (!spec.rotary)
          spec.rotary = nn::RotarySpec{.head_dim = head_dim, .rotary_dim = head_dim, .theta = 1e4};
        for (DecoderLayerSpec& layer : spec.layers) global_rotary(layer, LayerRotary::kNone);
      }};
}

// Where both tables have heads of one size.
Feature of_local_rotary() {
  const auto is_in = [](const CausalLMSpec& spec) {
    return spec.rotary && spec.local_rotary && spec.rotary->head_dim == spec.local_rotary->head_dim &&
           std::any_of(spec.layers.begin(), spec.layers.end(),
                       [](const DecoderLayerSpec& layer) { return layer.rotary == LayerRotary::kLocal; });
  };
  return {"local rotary", is_in, [](CausalLMSpec& spec) {
            for (DecoderLayerSpec& layer : spec.layers) global_rotary(layer, LayerRotary::kLocal);
          }};
}

// Of layers that read the keys of a later layer than the first one of their kind.
Feature of_which_keys() {
  const auto reads_later = [](const CausalLMSpec& spec, const DecoderLayerSpec& layer) {
    const auto& keys_of = layer.attention.keys_of;
    return keys_of && *keys_of > 0 &&
           (spec.layers[0].attention.options.window > 0) == (layer.attention.options.window > 0);
  };
  return {"which layer's keys are read",
          [=](const CausalLMSpec& spec) {
            return std::any_of(spec.layers.begin(), spec.layers.end(),
                               [&](const DecoderLayerSpec& layer) { return reads_later(spec, layer); });
          },
          [=](CausalLMSpec& spec) {
            spec.layers[0].attention.lends_keys = true;
            for (DecoderLayerSpec& layer : spec.layers)
              if (reads_later(spec, layer)) layer.attention.keys_of = 0;
          }};
}

// Norms behind the blocks, where there are others before them.
bool without_post_norms(DecoderLayerSpec& layer) {
  if (!layer.attention_norm) return false;
  // A block without a norm before it keeps the one behind it.
  const bool attention = drop(layer.post_attention_norm), mlp = layer.mlp_norm && drop(layer.post_mlp_norm);
  return attention || mlp;
}

// Norms behind the blocks alone, put before them.
bool norms_before(DecoderLayerSpec& layer) {
  if (layer.attention_norm) return false;
  std::swap(layer.attention_norm, layer.post_attention_norm);
  std::swap(layer.mlp_norm, layer.post_mlp_norm);
  return true;
}

// A feature of experts' router: `changed` as of_layers has it.
std::function<bool(DecoderLayerSpec&)> of_router(bool (*changed)(ops::RouterOptions&)) {
  return [=](DecoderLayerSpec& layer) { return layer.experts && changed(layer.experts->router); };
}

// But for one with norms of its own, without which there is none.
bool without_shared_expert(DecoderLayerSpec& layer) {
  return layer.experts && !layer.experts->branch_norms && drop(layer.experts->shared);
}

bool open_shared_gate(DecoderLayerSpec& layer) {
  return layer.experts && layer.experts->shared && !std::exchange(layer.experts->shared->gate, "").empty();
}

// A value of experts other than `off`.
template <typename Value>
std::function<bool(DecoderLayerSpec&)> of_experts(Value nn::ExpertsSpec::*value, const Value& off) {
  return [=](DecoderLayerSpec& layer) {
    return layer.experts && std::exchange((*layer.experts).*value, off) != off;
  };
}

bool fewer_experts(ops::RouterOptions& router) {
  if (router.per_token < 2) return false;
  --router.per_token;
  return true;
}

std::vector<Feature> make_features() {
  using Layer = DecoderLayerSpec;
  using Spec = CausalLMSpec;
  return {
      of_layers("window", set<std::int64_t>([](Layer& l) -> auto& { return l.attention.options.window; }, 0)),
      of_layers("soft cap of the scores",
                set<double>([](Layer& l) -> auto& { return l.attention.options.soft_cap; }, 0)),
      of_layers("scale of the scores", plain_scale),
      of_layers("bias of q, k and v",
                set<bool>([](Layer& l) -> auto& { return l.attention.qkv_bias; }, false)),
      of_layers("bias of o", set<bool>([](Layer& l) -> auto& { return l.attention.output_bias; }, false)),
      of_layers("bias of the MLP", set<bool>([](Layer& l) -> auto& { return l.mlp.bias; }, false)),
      of_layers("activation",
                [](Layer& l) {
                  const auto off = ops::Activation::kSilu;
                  return !l.experts && std::exchange(l.mlp.activation, off) != off;
                }),
      of_layers("norms of q and k", [](Layer& l) { return drop(l.attention.qk_norm); }),
      of_layers("norms of q and k of 1 + weight", plain_head_norms),
      of_layers("norm of the values", [](Layer& l) { return drop(l.attention.value_norm_eps); }),
      of_which_keys(),
      of_layers("input of each layer", [](Layer& l) { return drop(l.layer_input); }),
      of_layers("number that the stream is multiplied by",
                [](Layer& l) { return !std::exchange(l.output_scale, "").empty(); }),
      of_layers("value heads of a delta net that share a key head", own_key_heads),
      of_layers("eps of a delta net's norm", default_delta_eps),
      of_layers("groups of a Mamba 2 layer's heads", one_state_space_group),
      of_layers("groups of a Mamba 2 layer's norm", of_mamba2(&nn::Mamba2Spec::norm_groups, std::int64_t{1})),
      of_layers("eps of a Mamba 2 layer's norm", of_mamba2(&nn::Mamba2Spec::norm_eps, 1e-6)),
      of_layers("bias of a Mamba 2 layer's convolution", of_mamba2(&nn::Mamba2Spec::convolution_bias, false)),
      of_layers("biases of a Mamba 2 layer's projections", of_mamba2(&nn::Mamba2Spec::bias, false)),
      of_layers("order of rows", one_row_group),
      of_layers("layer norm", rms_norms),
      of_layers("bias of norms", unbiased_norms),
      of_layers("norms of 1 + weight", without_unit_offset),
      of_layers("parallel blocks", in_sequence),
      of_layers("two norms of parallel blocks", one_parallel_norm),
      of_layers("norms behind the blocks too", without_post_norms),
      of_layers("norms behind the blocks alone", norms_before),
      of_layers_without_rotary(),
      of_local_rotary(),
      of_layers("residual multiplier",
                set<double>([](Layer& l) -> auto& { return l.residual_multiplier; }, 1)),
      of_layers("experts' weights that are divided by their sum",
                of_router([](ops::RouterOptions& r) { return std::exchange(r.normalized, false); })),
      of_layers("experts' weights as the softmax has them",
                of_router([](ops::RouterOptions& r) { return !std::exchange(r.normalized, true); })),
      of_layers("sigmoids of a router", of_router([](ops::RouterOptions& r) {
                  constexpr auto kOff = ops::RouterScores::kSoftmax;
                  return std::exchange(r.scores, kOff) != kOff;
                })),
      of_layers("scale of experts' weights",
                of_router([](ops::RouterOptions& r) { return std::exchange(r.scale, 1) != 1; })),
      of_layers("bias for the choice of experts",
                [](Layer& l) { return l.experts && drop(l.experts->choice_bias); }),
      of_layers("groups of experts", of_router([](ops::RouterOptions& r) {
                  return std::exchange(r.groups, r.groups_per_token = 1) != 1;
                })),
      of_layers("a token's last expert", of_router(fewer_experts)),
      of_layers("shared expert", without_shared_expert),
      of_layers("gate of the shared expert", open_shared_gate),
      of_layers("scales of experts' weights", of_experts(&nn::ExpertsSpec::weight_scales, std::string())),
      of_layers("bias of the router", of_experts(&nn::ExpertsSpec::router_bias, false)),
      of_layers("biases of experts", of_experts(&nn::ExpertsSpec::bias, false)),
      of_layers("activation of experts", of_experts(&nn::ExpertsSpec::activation, ops::Activation::kSilu)),
      of_layers("sinks", set<bool>([](Layer& l) -> auto& { return l.attention.sinks; }, false)),
      of_value<bool>(
          "final norm of 1 + weight", [](Spec& s) -> auto& { return s.final_norm.unit_offset; }, false),
      of_value<bool>(
          "bias of the final norm", [](Spec& s) -> auto& { return s.final_norm.bias; }, false),
      of_value<ops::NormKind>(
          "final layer norm", [](Spec& s) -> auto& { return s.final_norm.kind; }, ops::NormKind::kRms),
      of_value<double>(
          "embedding scale", [](Spec& s) -> auto& { return s.embedding_scale; }, 1),
      of_value<double>(
          "logits' scale", [](Spec& s) -> auto& { return s.head.scale; }, 1),
      of_value<double>(
          "logits' soft cap", [](Spec& s) -> auto& { return s.head.soft_cap; }, 0),
      of_layers("interleaved rotary",
                [](Layer& l) {
                  auto& latent = l.attention.latent;
                  return std::exchange(latent ? latent->layout.interleaved : l.attention.layout.interleaved,
                                       false);
                }),
      of_rotary("partial rotary",
                [](nn::RotarySpec& r) {
                  return r.scaling == Scaling::kNone && std::exchange(r.rotary_dim, r.head_dim) != r.head_dim;
                }),
      of_rotary("rotary base", [](nn::RotarySpec& r) { return std::exchange(r.theta, 300.0) != 300; }),
      of_rotary(
          "linear scaling",
          [](nn::RotarySpec& r) { return r.scaling == Scaling::kLinear && std::exchange(r.factor, 1) != 1; }),
      of_rotary("pairs that proportional rotary leaves",
                [](nn::RotarySpec& r) {
                  return r.scaling == Scaling::kProportional &&
                         std::exchange(r.rotated_pairs, r.head_dim / 2) != r.head_dim / 2;
                }),
      of_rotary("factor of proportional rotary",
                [](nn::RotarySpec& r) {
                  return r.scaling == Scaling::kProportional && std::exchange(r.factor, 1) != 1;
                }),
      of_yarn("yarn's scaling", &nn::RotarySpec::factor, 1.0),
      of_yarn("yarn's attention factor", &nn::RotarySpec::attention_factor, 1.0),
      of_yarn("yarn's original length", &nn::RotarySpec::original_max_position, 512.0),
      // Rounded down to a whole pair, 4 and 32 turns are the first of few pairs.
      of_rotary("yarn's fast end",
                [](nn::RotarySpec& r) { return !r.truncate && std::exchange(r.beta_fast, 32.0) != 32; }),
      of_yarn("yarn's blend that ends between pairs", &nn::RotarySpec::truncate, true),
      of_rotary("queries scaled by their position",
                [](nn::RotarySpec& r) { return std::exchange(r.query_beta, 0.0) != 0; }),
      of_rotary("longrope's short factors",
                of_longrope([](nn::RotarySpec& r) { r.short_factor = r.long_factor; })),
      of_rotary("longrope's long factors",
                of_longrope([](nn::RotarySpec& r) { r.long_factor = r.short_factor; })),
      of_rotary("longrope's attention factor",
                of_longrope([](nn::RotarySpec& r) { r.attention_factor = 1; })),
      of_rotary("longrope's switch after its last position",
                of_longrope([](nn::RotarySpec& r) { r.original_max_position -= 1; })),
      of_rotary("longrope's switch before the next position",
                of_longrope([](nn::RotarySpec& r) { r.original_max_position += 1; })),
  };
}

}  // namespace

const std::vector<Feature>& features() {
  static const std::vector<Feature> kFeatures = make_features();
  return kFeatures;
}

}  // namespace lorikeet::test
