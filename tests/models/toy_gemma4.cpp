// A toy model of Gemma 4's forms, and its formulas written out by plain ATen calls: these share nothing with
// the blocks.
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <limits>

#include "models/toy_family.h"

namespace lorikeet::test {
namespace {

constexpr std::int64_t kHidden = 24, kHeads = 4, kIntermediate = 20;
constexpr std::int64_t kWindow = 3, kLocalDim = 8, kGlobalDim = 16, kRotatedPairs = 3;
constexpr std::int64_t kExperts = 3, kExpertsOfToken = 2, kExpertWidth = 12;
constexpr std::int64_t kLayers = 5, kInputWidth = 5, kInputVocab = 40;
constexpr double kEps = 1e-5, kLocalTheta = 25, kGlobalTheta = 100, kFactor = 2;

nn::DecoderLayerSpec layer(std::int64_t index, bool full) {
  const std::string prefix = "transformer.h." + std::to_string(index);
  const auto norm = [&](const std::string& name, std::int64_t size) {
    return nn::NormSpec{prefix + name, size, kEps};
  };
  const std::int64_t head_dim = full ? kGlobalDim : kLocalDim;
  return {
      .index = index,
      .attention = {.prefix = prefix + ".attn",
                    .hidden_size = kHidden,
                    .layout = {kHeads, full ? 1 : 2, head_dim},
                    .qkv_bias = full,
                    .options = {.scale = 1, .window = full ? 0 : kWindow},
                    .names = {.q = "query", .k = "key", .v = "value", .output = "dense"},
                    .qk_norm = nn::QkNormSpec{norm(".attn.q_norm", head_dim), norm(".attn.k_norm", head_dim)},
                    .value_norm_eps = kEps,
                    .keys_as_values = full},
      .mlp = {.prefix = prefix + ".ffn",
              .hidden_size = kHidden,
              .intermediate_size = kIntermediate,
              .activation = ops::Activation::kGeluTanh,
              .names = {.gate = "w1", .up = "w3", .down = "w2"}},
      .attention_norm = norm(".ln_1", kHidden),
      .mlp_norm = norm(".ln_3", kHidden),
      .post_attention_norm = norm(".ln_2", kHidden),
      .post_mlp_norm = norm(".ln_4", kHidden),
      .rotary = full ? nn::LayerRotary::kGlobal : nn::LayerRotary::kLocal,
      .layer_input =
          nn::LayerInputSpec{
              .prefix = prefix, .hidden_size = kHidden, .width = kInputWidth, .norm = norm(".ln_5", kHidden)},
      .output_scale = prefix + ".scale"};
}

// Puts experts beside the layer's MLP.
void add_experts(nn::DecoderLayerSpec& layer) {
  const std::string prefix = "transformer.h." + std::to_string(layer.index);
  layer.mlp_norm.reset();
  layer.experts = nn::ExpertsSpec{
      .prefix = prefix,
      .hidden_size = kHidden,
      .intermediate_size = kExpertWidth,
      .count = kExperts,
      .router = {.per_token = kExpertsOfToken},
      .activation = ops::Activation::kGeluTanh,
      .names = {.router = "router.proj", .experts = "experts", .gate = "w1", .up = "w3", .down = "w2"},
      .shared = nn::SharedExpertSpec{.intermediate_size = layer.mlp.intermediate_size,
                                     .name = "ffn",
                                     .gate = "",
                                     .modules = layer.mlp.names},
      .weight_scales = prefix + ".router.weight_scales",
      .branch_norms = nn::BranchNorms{.mlp_input = prefix + ".ln_3",
                                      .mlp_output = prefix + ".ln_6",
                                      .experts_input = prefix + ".ln_7",
                                      .experts_output = prefix + ".ln_8",
                                      .router_scale = prefix + ".router.scale",
                                      .eps = kEps}};
}

// Divided by its root mean square.
at::Tensor unit(const at::Tensor& x) { return x / at::sqrt(at::mean(x * x, -1, true) + kEps); }

at::Tensor norm(const State& state, const std::string& name, const at::Tensor& x) {
  return unit(x) * state.at(name + ".weight");
}

at::Tensor linear(const State& state, const std::string& name, const at::Tensor& x) {
  const at::Tensor y = at::matmul(x, state.at(name + ".weight").t());
  const auto bias = state.find(name + ".bias");
  return bias == state.end() ? y : y + bias->second;
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

at::Tensor mlp(const State& state, const std::string& prefix, const at::Tensor& x) {
  return linear(state, prefix + ".w2",
                gelu_tanh(linear(state, prefix + ".w1", x)) * linear(state, prefix + ".w3", x));
}

// The MLP and two experts of three, each between its own norms. The router reads the stream itself.
at::Tensor mlp_and_experts(const State& state, const std::string& h, const at::Tensor& x) {
  const at::Tensor routed = unit(x) * state.at(h + ".router.scale") / std::sqrt(24.0);
  const at::Tensor logits = linear(state, h + ".router.proj", routed);
  const at::Tensor second = std::get<0>(at::topk(logits, kExpertsOfToken)).narrow(1, 1, 1);
  const at::Tensor exps = at::exp(logits) * logits.ge(second);
  const at::Tensor weights = exps / exps.sum(1, true) * state.at(h + ".router.weight_scales");
  const at::Tensor n = norm(state, h + ".ln_7", x);
  at::Tensor sum = at::zeros_like(x);
  for (std::int64_t e = 0; e < kExperts; ++e)
    sum = sum + weights.narrow(1, e, 1) * mlp(state, h + ".experts." + std::to_string(e), n);
  return norm(state, h + ".ln_6", mlp(state, h + ".ffn", norm(state, h + ".ln_3", x))) +
         norm(state, h + ".ln_8", sum);
}

// One head [length, head_dim]: pairs i and i + head_dim / 2; of the global table the first three alone.
at::Tensor rotated(const at::Tensor& head, bool full) {
  const at::Tensor position = at::arange(head.size(0), head.options());
  const std::int64_t half = head.size(1) / 2;
  std::vector<at::Tensor> columns = at::unbind(head, 1);
  for (std::int64_t pair = 0; pair < (full ? kRotatedPairs : half); ++pair) {
    const double frequency =
        std::pow(full ? kGlobalTheta : kLocalTheta, -static_cast<double>(pair) / static_cast<double>(half)) /
        (full ? kFactor : 1);
    const auto i = static_cast<std::size_t>(pair), j = static_cast<std::size_t>(pair + half);
    const at::Tensor angle = position * frequency, low = columns[i], high = columns[j];
    columns[i] = low * at::cos(angle) - high * at::sin(angle);
    columns[j] = high * at::cos(angle) + low * at::sin(angle);
  }
  return at::stack(columns, 1);
}

at::Tensor mask(std::int64_t length, bool full, const at::TensorOptions& options) {
  at::Tensor mask = at::zeros({length, length}, options);
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::int64_t j = 0; j < length; ++j) {
      if (j > i || (!full && i - j >= kWindow)) mask[i][j] = -std::numeric_limits<double>::infinity();
    }
  }
  return mask;
}

// The layers: whether they have no window, norms of queries and keys, a number behind them, experts, and
// which layer's keys and values they read.
struct Kind {
  std::int64_t index;
  bool full, normed, scaled, experts;
  std::int64_t keys_of;
};
constexpr std::array<Kind, kLayers> kKinds{
    Kind{0, false, true, true, false, 0}, Kind{1, true, true, true, false, 1},
    Kind{2, true, false, false, true, 2}, Kind{3, false, true, true, false, 0},
    Kind{4, true, true, false, true, 1}};

// Keys and values are those of `maker`, out of the normed input that it had.
at::Tensor attention(const State& state, const std::string& prefix, const at::Tensor& x,
                     const std::string& maker, const at::Tensor& maker_x, const Kind& kind) {
  const std::int64_t head_dim = kind.full ? kGlobalDim : kLocalDim, shared_by = kind.full ? 4 : 2;
  const auto head = [&](const std::string& module, const at::Tensor& rows, std::int64_t index) {
    return linear(state, module, rows).narrow(1, index * head_dim, head_dim);
  };
  const auto maybe_normed = [&](const std::string& name, const at::Tensor& rows) {
    return kind.normed ? norm(state, name, rows) : rows;
  };
  const std::string key = maker + ".key", value = kind.full ? key : maker + ".value";
  std::vector<at::Tensor> outputs;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t group = h / shared_by;
    const at::Tensor q = maybe_normed(prefix + ".q_norm", head(prefix + ".query", x, h));
    const at::Tensor k = maybe_normed(maker + ".k_norm", head(key, maker_x, group));
    const at::Tensor scores = at::matmul(rotated(q, kind.full), rotated(k, kind.full).t());
    const at::Tensor weights = at::softmax(scores + mask(x.size(0), kind.full, x.options()), 1);
    outputs.push_back(at::matmul(weights, unit(head(value, maker_x, group))));
  }
  return linear(state, prefix + ".dense", at::cat(outputs, 1));
}

std::string layer_name(std::int64_t index) { return "transformer.h." + std::to_string(index); }

}  // namespace

nn::CausalLMSpec toy_gemma4_spec() {
  nn::CausalLMSpec spec = toy_spec();
  spec.shape.layers = kLayers;
  spec.layers.clear();
  for (const Kind& kind : kKinds) {
    nn::DecoderLayerSpec own = layer(kind.index, kind.full);
    if (!kind.normed) own.attention.qk_norm.reset();
    if (!kind.scaled) own.output_scale.clear();
    own.attention.lends_keys = kind.index < 2;
    if (kind.keys_of != kind.index) {
      own.attention.keys_of = kind.keys_of;
      own.attention.keys_as_values = false;
      own.mlp.intermediate_size *= 2;
    }
    if (kind.experts) add_experts(own);
    spec.layers.push_back(own);
  }
  spec.layer_inputs = nn::LayerInputsSpec{.table = "transformer.inputs",
                                          .vocab_size = kInputVocab,
                                          .projection = "transformer.to_inputs",
                                          .norm = {"transformer.ln_inputs", kInputWidth, kEps},
                                          .hidden_size = kHidden,
                                          .layers = kLayers};
  spec.rotary = nn::RotarySpec{.head_dim = kGlobalDim,
                               .rotary_dim = kGlobalDim,
                               .theta = kGlobalTheta,
                               .scaling = nn::RotarySpec::Scaling::kProportional,
                               .factor = kFactor,
                               .rotated_pairs = kRotatedPairs};
  spec.local_rotary = nn::RotarySpec{.head_dim = kLocalDim, .rotary_dim = kLocalDim, .theta = kLocalTheta};
  return spec;
}

at::Tensor toy_gemma4_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  const at::Tensor looked_up =
      state.at("transformer.inputs.weight").index_select(0, at::tensor(ids)) * std::sqrt(5.0);
  const at::Tensor projected = linear(state, "transformer.to_inputs", x) / std::sqrt(24.0);
  std::vector<at::Tensor> attended;  // the normed input of each layer's attention
  for (const Kind& kind : kKinds) {
    const std::string h = layer_name(kind.index);
    const at::Tensor n = norm(state, h + ".ln_1", x);
    attended.push_back(n);
    const at::Tensor& maker_x = attended.at(static_cast<std::size_t>(kind.keys_of));
    x = x + norm(state, h + ".ln_2",
                 attention(state, h + ".attn", n, layer_name(kind.keys_of) + ".attn", maker_x, kind));
    const at::Tensor y =
        kind.experts ? mlp_and_experts(state, h, x) : mlp(state, h + ".ffn", norm(state, h + ".ln_3", x));
    x = x + norm(state, h + ".ln_4", y);
    const auto own = [&](const at::Tensor& all) {
      return all.narrow(1, kind.index * kInputWidth, kInputWidth);
    };
    const at::Tensor input =
        (norm(state, "transformer.ln_inputs", own(projected)) + own(looked_up)) / std::sqrt(2.0);
    const at::Tensor gated = gelu_tanh(linear(state, h + ".per_layer_input_gate", x)) * input;
    x = x + norm(state, h + ".ln_5", linear(state, h + ".per_layer_projection", gated));
    if (kind.scaled) x = x * state.at(h + ".scale");
  }
  const at::Tensor last = unit(x) * (1 + state.at("transformer.ln_f.weight"));
  return 3 * at::tanh(0.5 * linear(state, "output", last) / 3);
}

}  // namespace lorikeet::test
