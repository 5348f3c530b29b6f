// The toy family's formulas written out by plain ATen calls: nothing here is shared with the blocks.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "models/toy_family.h"

namespace lorikeet::test {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 8;

at::Tensor norm(const State& state, const std::string& name, const at::Tensor& x) {
  const at::Tensor scaled = x / at::sqrt(at::mean(x * x, -1, true) + 1e-5);
  return scaled * (1 + state.at(name + ".weight"));
}

at::Tensor linear(const State& state, const std::string& name, const at::Tensor& x) {
  const at::Tensor y = at::matmul(x, state.at(name + ".weight").t());
  const auto bias = state.find(name + ".bias");
  return bias == state.end() ? y : y + bias->second;
}

// What the pairs (0, 2) and (1, 3) of a head turn by a position, and what the result is multiplied by.
// Queries grow by `query_beta` log(2) at position 3, and by `query_beta` log(3) at position 6.
struct Turns {
  double first = 1, second = 0.1, factor = 1, query_beta = 0;
};

// Turns dimensions 0..3 of one head [length, 8].
at::Tensor turn(const at::Tensor& head, const Turns& turns) {
  const at::Tensor position = at::arange(head.size(0), head.options());
  std::vector<at::Tensor> columns = at::unbind(head, 1);
  for (const std::size_t pair : {0U, 1U}) {
    const at::Tensor angle = position * (pair == 0 ? turns.first : turns.second);
    const at::Tensor low = columns[pair], high = columns[pair + 2];
    columns[pair] = turns.factor * (low * at::cos(angle) - high * at::sin(angle));
    columns[pair + 2] = turns.factor * (high * at::cos(angle) + low * at::sin(angle));
  }
  return at::stack(columns, 1);
}

// Of each position, fp64 [length, 1].
at::Tensor query_scale(std::int64_t length, double beta) {
  std::vector<double> scales;
  for (std::int64_t position = 0; position < length; ++position)
    scales.push_back(1 + beta * std::log(1 + static_cast<double>(position / 3)));
  return at::tensor(scales, at::TensorOptions(at::kDouble)).unsqueeze(1);
}

at::Tensor layer_norm(const State& state, const std::string& name, const at::Tensor& x) {
  const at::Tensor centred = x - at::mean(x, -1, true);
  const at::Tensor y =
      centred / at::sqrt(at::mean(centred * centred, -1, true) + 1e-5) * state.at(name + ".weight");
  const auto bias = state.find(name + ".bias");
  return bias == state.end() ? y : y + bias->second;
}

at::Tensor rms(const at::Tensor& x, const at::Tensor& scale) {
  return x / at::sqrt(at::mean(x * x, -1, true) + 1e-5) * scale;
}

struct AttentionKind {
  bool rotary;
  std::int64_t window;    // 0: none
  double cap;             // 0: none
  std::string qk_norm{};  // "": none, "head" or "all"
  Turns turns{};
  bool gated = false;  // the rows of query hold a gate behind each head
};

at::Tensor attention(const State& state, const std::string& prefix, const at::Tensor& x,
                     const AttentionKind& kind) {
  const auto head_of = [&](const std::string& name, std::int64_t head) {
    at::Tensor all = linear(state, prefix + "." + name, x);
    const std::string norm = name == "query" ? ".q_norm.weight" : ".k_norm.weight";
    if (kind.qk_norm == "all" && name != "value") all = rms(all, state.at(prefix + norm));
    const std::int64_t apart = kind.gated && name == "query" ? 2 : 1;
    at::Tensor own = all.narrow(1, apart * head * kHeadDim, kHeadDim);
    if (kind.qk_norm == "head" && name != "value") own = rms(own, 1 + state.at(prefix + norm));
    return own;
  };
  const std::int64_t length = x.size(0);
  at::Tensor mask = at::zeros({length, length}, x.options());
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::int64_t j = 0; j < length; ++j) {
      const bool seen = j <= i && (kind.window == 0 || i - j < kind.window);
      if (!seen) mask[i][j] = -std::numeric_limits<double>::infinity();
    }
  }
  std::vector<at::Tensor> outputs;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t group = h / (kHeads / kKvHeads);
    at::Tensor q = head_of("query", h), k = head_of("key", group);
    if (kind.rotary) {
      q = query_scale(length, kind.turns.query_beta).to(x.scalar_type()) * turn(q, kind.turns);
      k = turn(k, kind.turns);
    }
    at::Tensor scores = at::matmul(q, k.t()) * 0.5;
    if (kind.cap > 0) scores = kind.cap * at::tanh(scores / kind.cap);
    at::Tensor weights = at::exp(scores + mask);
    at::Tensor sum = weights.sum(1, true);
    if (const auto sinks = state.find(prefix + ".sinks"); sinks != state.end())
      sum = sum + at::exp(sinks->second[h]);
    at::Tensor out = at::matmul(weights / sum, head_of("value", group));
    if (kind.gated) {
      const at::Tensor all = linear(state, prefix + ".query", x);
      out = out * at::sigmoid(all.narrow(1, (2 * h + 1) * kHeadDim, kHeadDim));
    }
    outputs.push_back(out);
  }
  return linear(state, prefix + ".dense", at::cat(outputs, 1));
}

at::Tensor exact_gelu(const at::Tensor& x) { return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0))); }
at::Tensor gelu_tanh(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
at::Tensor silu(const at::Tensor& x) { return x * at::sigmoid(x); }

at::Tensor mlp(const State& state, const std::string& prefix, const at::Tensor& x,
               at::Tensor (*activation)(const at::Tensor&)) {
  return linear(state, prefix + ".w2",
                activation(linear(state, prefix + ".w1", x)) * linear(state, prefix + ".w3", x));
}

at::Tensor clamped_mlp(const State& state, const std::string& prefix, const at::Tensor& x) {
  const at::Tensor gate = at::clamp_max(linear(state, prefix + ".w1", x), 7);
  const at::Tensor up = at::clamp(linear(state, prefix + ".w3", x), -7, 7);
  return linear(state, prefix + ".w2", (up + 1) * gate * at::sigmoid(1.702 * gate));
}

// Two experts of three, weighted by the softmax of their logits, and a shared one times its gate.
at::Tensor experts(const State& state, const std::string& prefix, const at::Tensor& x) {
  const at::Tensor logits = linear(state, prefix + ".gate", x);
  const at::Tensor second = std::get<0>(at::topk(logits, 2)).narrow(1, 1, 1);
  const at::Tensor exps = at::exp(logits) * logits.ge(second);
  const at::Tensor weights = exps / exps.sum(1, true);
  at::Tensor y =
      at::sigmoid(linear(state, prefix + ".shared_gate", x)) * mlp(state, prefix + ".shared", x, silu);
  for (std::int64_t e = 0; e < 3; ++e)
    y = y + weights.narrow(1, e, 1) * mlp(state, prefix + ".experts." + std::to_string(e), x, silu);
  return y;
}

// The delta rule token by token: 2 key heads of 6, 4 value heads of 5, a convolution of 3 taps.
at::Tensor delta_net(const State& state, const std::string& prefix, const at::Tensor& x) {
  const std::int64_t length = x.size(0);
  const at::Tensor raw = linear(state, prefix + ".qkv", x),
                   taps = state.at(prefix + ".conv.weight").squeeze(1);
  const at::Tensor padded = at::cat({at::zeros({2, raw.size(1)}, raw.options()), raw});
  at::Tensor qkv = at::zeros_like(raw);
  for (std::int64_t tap = 0; tap < 3; ++tap) qkv = qkv + padded.narrow(0, tap, length) * taps.select(1, tap);
  qkv = qkv * at::sigmoid(qkv);
  const at::Tensor z = linear(state, prefix + ".z", x), beta = at::sigmoid(linear(state, prefix + ".b", x));
  const at::Tensor pace = at::log1p(at::exp(linear(state, prefix + ".a", x) + state.at(prefix + ".dt_bias")));
  const at::Tensor kept = at::exp(-at::exp(state.at(prefix + ".A_log")) * pace);
  const auto unit = [](const at::Tensor& v) { return v / at::sqrt((v * v).sum() + 1e-6); };
  std::vector<at::Tensor> heads;
  for (std::int64_t h = 0; h < 4; ++h) {
    at::Tensor s = at::zeros({6, 5}, x.options());
    std::vector<at::Tensor> rows;
    for (std::int64_t t = 0; t < length; ++t) {
      const at::Tensor q = unit(qkv[t].narrow(0, h / 2 * 6, 6)) / std::sqrt(6.0);
      const at::Tensor k = unit(qkv[t].narrow(0, 12 + h / 2 * 6, 6)), v = qkv[t].narrow(0, 24 + h * 5, 5);
      s = kept[t][h] * s;
      s = s + at::outer(k, beta[t][h] * (v - at::matmul(k, s)));
      rows.push_back(at::matmul(q, s));
    }
    const at::Tensor gate = z.narrow(1, h * 5, 5);
    heads.push_back(rms(at::stack(rows), state.at(prefix + ".norm.weight")) * gate * at::sigmoid(gate));
  }
  return linear(state, prefix + ".dense", at::cat(heads, 1));
}

// Four heads whose keys share 4 turned numbers.
at::Tensor latent_attention(const State& state, const std::string& prefix, const at::Tensor& x,
                            std::int64_t plain, std::int64_t value, bool neighbours) {
  const std::int64_t length = x.size(0), rank = state.at(prefix + ".latent_norm.weight").size(0);
  const auto turned = [&](const at::Tensor& four) {
    const at::Tensor order = at::tensor(std::vector<std::int64_t>{0, 2, 1, 3});  // its own inverse
    const at::Tensor halves = neighbours ? four.index_select(1, order) : four;
    const at::Tensor result = turn(halves, {});
    return neighbours ? result.index_select(1, order) : result;
  };
  const auto down = state.find(prefix + ".query_norm.weight");
  const at::Tensor queries =
      down == state.end()
          ? linear(state, prefix + ".query", x)
          : linear(state, prefix + ".query_up", rms(linear(state, prefix + ".query_down", x), down->second));
  const at::Tensor latent = linear(state, prefix + ".latent", x);
  const at::Tensor shared = turned(latent.narrow(1, rank, 4));
  const at::Tensor keys_values = linear(
      state, prefix + ".key_value", rms(latent.narrow(1, 0, rank), state.at(prefix + ".latent_norm.weight")));
  const at::Tensor hidden = at::triu(at::ones({length, length}, x.options()), 1).to(at::kBool);
  std::vector<at::Tensor> outputs;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const at::Tensor q = queries.narrow(1, h * (plain + 4), plain + 4);
    const at::Tensor query = query_scale(length, 0.4).to(x.scalar_type()) *
                             at::cat({q.narrow(1, 0, plain), turned(q.slice(1, plain))}, 1);
    const at::Tensor of_head = keys_values.narrow(1, h * (plain + value), plain + value);
    const at::Tensor key = at::cat({of_head.narrow(1, 0, plain), shared}, 1);
    const at::Tensor weights = at::exp(0.5 * at::matmul(query, key.t())).masked_fill(hidden, 0);
    outputs.push_back(at::matmul(weights / weights.sum(1, true), of_head.slice(1, plain)));
  }
  return linear(state, prefix + ".dense", at::cat(outputs, 1));
}

at::Tensor short_conv(const State& state, const std::string& prefix, const at::Tensor& x) {
  const std::int64_t length = x.size(0), width = x.size(1);
  const at::Tensor all = linear(state, prefix + ".bcx", x),
                   weight = state.at(prefix + ".conv.weight").squeeze(1);
  const at::Tensor u = all.narrow(1, 0, width) * all.narrow(1, 2 * width, width);
  const std::int64_t taps = weight.size(1);
  at::Tensor sum = at::zeros_like(u);
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t j = 0; j < taps && j <= t; ++j) sum[t].add_(weight.select(1, taps - 1 - j) * u[t - j]);
  }
  return linear(state, prefix + ".dense", all.narrow(1, width, width) * sum);
}

}  // namespace

at::Tensor toy_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  const Turns turns{.query_beta = 0.4};

  at::Tensor n = norm(state, "transformer.h.0.ln_1", x);
  x = x + attention(state, "transformer.h.0.attn", n, {true, 3, 0, "", turns}) +
      mlp(state, "transformer.h.0.ffn", n, exact_gelu);

  n = norm(state, "transformer.h.1.ln_1", x);
  x = x + norm(state, "transformer.h.1.ln_2", attention(state, "transformer.h.1.attn", n, {false, 0, 2}));
  n = norm(state, "transformer.h.1.ln_3", x);
  x = x + norm(state, "transformer.h.1.ln_4", mlp(state, "transformer.h.1.ffn", n, gelu_tanh));

  n = norm(state, "transformer.h.2.ln_1", x);
  x = x +
      norm(state, "transformer.h.2.ln_2",
           attention(state, "transformer.h.2.attn", n, {true, 0, 0, "", turns})) +
      norm(state, "transformer.h.2.ln_4", mlp(state, "transformer.h.2.ffn", n, silu));

  const at::Tensor logits = 0.5 * linear(state, "output", norm(state, "transformer.ln_f", x));
  return 3 * at::tanh(logits / 3);
}

at::Tensor toy_forms_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  const Turns turns = ids.size() > 3 ? Turns{1.0 / 2, 0.1 / 4, 1.2} : Turns{1, 0.1 / 1.5, 1.2};

  x = x +
      attention(state, "transformer.h.0.attn", layer_norm(state, "transformer.h.0.ln_1", x),
                {true, 0, 0, "", turns}) +
      linear(
          state, "transformer.h.0.ffn.w2",
          exact_gelu(linear(state, "transformer.h.0.ffn.w3", layer_norm(state, "transformer.h.0.ln_2", x))));

  at::Tensor n = norm(state, "transformer.h.1.ln_1", x);
  x = x + norm(state, "transformer.h.1.ln_2",
               attention(state, "transformer.h.1.attn", n, {true, 0, 0, "head", turns}));
  n = norm(state, "transformer.h.1.ln_3", x);
  x = x + norm(state, "transformer.h.1.ln_4", mlp(state, "transformer.h.1.ffn", n, silu));

  x = x + norm(state, "transformer.h.2.ln_2",
               attention(state, "transformer.h.2.attn", x, {true, 0, 0, "all", {1, 0.2, 1, 0.7}}));
  x = x + norm(state, "transformer.h.2.ln_4", mlp(state, "transformer.h.2.ffn", x, silu));

  n = layer_norm(state, "transformer.h.3.ln_1", x);
  x = x + 0.6 * attention(state, "transformer.h.3.attn", n, {false, 0, 0});
  x = x + 0.6 * clamped_mlp(state, "transformer.h.3.ffn", norm(state, "transformer.h.3.ln_2", x));

  n = norm(state, "transformer.h.4.ln_1", x);
  x = x + attention(state, "transformer.h.4.attn", n, {true, 0, 0, "", turns, true});
  x = x + experts(state, "transformer.h.4.ffn", norm(state, "transformer.h.4.ln_2", x));

  x = x + delta_net(state, "transformer.h.5.attn", norm(state, "transformer.h.5.ln_1", x));
  x = x + mlp(state, "transformer.h.5.ffn", norm(state, "transformer.h.5.ln_2", x), silu);

  const at::Tensor logits = 0.5 * linear(state, "output", norm(state, "transformer.ln_f", x));
  return 3 * at::tanh(logits / 3);
}

at::Tensor toy_short_conv_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  for (const std::string layer : {"transformer.h.0", "transformer.h.1", "transformer.h.2"}) {
    const at::Tensor n = norm(state, layer + ".ln_1", x);
    x = x + (layer.back() == '1'
                 ? attention(state, layer + ".attn", n, {true, 0, 0, "head", Turns{.query_beta = 0.4}})
                 : short_conv(state, layer + ".attn", n));
    x = x + mlp(state, layer + ".ffn", norm(state, layer + ".ln_2", x), silu);
  }
  const at::Tensor logits = 0.5 * linear(state, "output", norm(state, "transformer.ln_f", x));
  return 3 * at::tanh(logits / 3);
}

at::Tensor toy_latent_logits(const State& state, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
  at::Tensor x = state.at("transformer.wte.weight").index_select(0, at::tensor(ids)) * 1.7;
  for (const char layer : {'0', '1', '2'}) {
    const std::string prefix = std::string("transformer.h.") + layer, block = prefix + ".attn";
    const at::Tensor n = norm(state, prefix + ".ln_1", x);
    x = x + (layer == '0'   ? latent_attention(state, block, n, 5, 6, false)
             : layer == '1' ? attention(state, block, n, {true, 0, 0, "", Turns{.query_beta = 0.4}})
                            : latent_attention(state, block, n, 3, 11, true));
    x = x + mlp(state, prefix + ".ffn", norm(state, prefix + ".ln_2", x), silu);
  }
  const at::Tensor logits = 0.5 * linear(state, "output", norm(state, "transformer.ln_f", x));
  return 3 * at::tanh(logits / 3);
}

}  // namespace lorikeet::test
