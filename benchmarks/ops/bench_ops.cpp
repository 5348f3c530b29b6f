// bench_ops [--threads N] [--repeats N] [--dtype fp32|bf16] [--only NAME]
//
// Every fused operator, forward and backward, beside its reference() and beside what one writes with ATen, at
// the shapes of the 57M Llama of benchmarks/training: hidden 512, 8 heads, 4 key heads, intermediate 1408,
// vocabulary 32,000; 2,048 tokens in rows of 1,024. Those of gated delta nets are at Qwen3.5's shapes
// (delta_net.h), latent attention's and Mamba 2's at those of models that have them. Without --dtype in both.
// Prints Markdown.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare.h"
#include "delta_net.h"
#include "latent_heads.h"
#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/attention/sinks.h"
#include "ops/cpu_allocator.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/lora/lora_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/rotary/rotary.h"
#include "state_space.h"

namespace {

using namespace lorikeet::ops;
using lorikeet::bench::compare;
using lorikeet::bench::Pair;
using lorikeet::bench::Passes;
using lorikeet::bench::Settings;
using lorikeet::bench::untimed_copy;
using lorikeet::bench::Way;
using lorikeet::test::Backward;
using Outputs = std::vector<at::Tensor>;

constexpr std::int64_t kTokens = 2048, kHidden = 512, kHeads = 8, kKvHeads = 4, kHeadDim = 64, kInner = 1408;
constexpr std::int64_t kVocabulary = 32000, kRank = 16;
constexpr HeadLayout kLayout{kHeads, kKvHeads, kHeadDim};
constexpr double kEps = 1e-5;

at::Tensor random(const Settings& settings, at::IntArrayRef sizes, double scale = 1) {
  return (at::randn(sizes) * scale).to(settings.dtype);
}

double product_flops(std::int64_t m, std::int64_t k, std::int64_t n) {
  return 2.0 * static_cast<double>(m * k * n);
}

// A way with one output.
template <typename F>
Way way(F f) {
  return [f](const at::Tensor& x) -> Outputs { return {f(x)}; };
}

// An operator of which only forward is timed.
template <typename F>
Pair forward_alone(F f) {
  return [f](const at::Tensor& x, Backward&) { return f(x); };
}

void bench_attention(const Settings& s, const std::string& name, const std::vector<std::int32_t>& bounds) {
  Sequences sequences{bounds, {}, 0};
  double pairs = 0;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::int64_t length = bounds[i + 1] - bounds[i];
    sequences.max_seqlen = std::max(sequences.max_seqlen, length);
    pairs += 0.5 * static_cast<double>(length * length);
  }
  const AttentionOptions options{0.125};
  // Each sequence by itself, as ATen's CPU kernel has no variable lengths.
  const auto aten = [=](const at::Tensor& qkv) {
    Outputs outputs;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      const auto heads = qkv.slice(0, bounds[i], bounds[i + 1])
                             .view({1, -1, kHeads + 2 * kKvHeads, kHeadDim})
                             .transpose(1, 2);
      const auto out = at::scaled_dot_product_attention(
          heads.slice(1, 0, kHeads), heads.slice(1, kHeads, kHeads + kKvHeads),
          heads.slice(1, kHeads + kKvHeads), {}, 0.0, /*is_causal=*/true, options.scale, /*enable_gqa=*/true);
      outputs.push_back(out.transpose(1, 2).reshape({-1, kHeads * kHeadDim}));
    }
    return at::cat(outputs);
  };
  // Products of the causal half: 2 in forward, 5 in backward.
  const double product = 2 * pairs * kHeads * kHeadDim;
  compare(s, {.name = "attention, " + name,
              .input = random(s, {kTokens, kLayout.width()}),
              .upstream = random(s, {kTokens, kHeads * kHeadDim}),
              .here =
                  [=](const auto& x, Backward& backward) {
                    AttentionStatistics statistics;
                    auto out = attention(x, kLayout, sequences, options, &statistics);
                    backward = [=](const auto& dy) {
                      return pack(attention_backward(dy, x, out, statistics, kLayout, sequences, options));
                    };
                    return out;
                  },
              .reference =
                  way([=](const auto& x) { return reference::attention(x, kLayout, sequences, options); }),
              .aten = way(aten),
              .forward_flops = 2 * product,
              .together_flops = 7 * product});
}

// Sinks behind attention, which change its output and statistics in place.
void bench_sinks(const Settings& s) {
  const at::Tensor lse = at::randn({kHeads, kTokens}), sinks = at::randn({kHeads});
  const auto with = [=](const auto& apply) {
    return [=](const at::Tensor& x) {
      const at::Tensor out = untimed_copy(x.detach());
      apply(out, untimed_copy(lse), sinks);
      return out;
    };
  };
  const at::Tensor out = random(s, {kTokens, kHeads * kHeadDim});
  compare(s, {.name = "attention sinks",
              .input = out,
              .here = forward_alone(with(apply_sinks_)),
              .reference = way(with(reference::apply_sinks_)),
              .forward_bytes = 2 * static_cast<double>(out.nbytes() + lse.nbytes()),
              .passes = Passes::kForward});
}

// At the shape of Qwen3.5-0.8B, 2,048 tokens in rows of 512. Its reference, a loop over tokens, would take
// minutes, and ATen has nothing like it.
void bench_gated_delta(const Settings& s) {
  const DeltaLayout layout{.key_heads = 16, .value_heads = 16, .key_dim = 128, .value_dim = 128};
  const Sequences sequences{{0, 512, 1024, 1536, 2048}, {}, 512};
  const at::Tensor gates = random(s, {kTokens, 2 * layout.value_heads});
  const DeltaDecay decay{at::linspace(-3, 2.77, layout.value_heads, at::kFloat),
                         at::linspace(-4, 1, layout.value_heads, at::kFloat)};
  // Of each head and chunk of 64 tokens: products with the state, of which there is none in a sequence's
  // first chunk and none is needed behind its last, and triangular ones of tokens with each other.
  const double chunks = static_cast<double>(kTokens * layout.value_heads) / 64;
  const double with_state = chunks * 7 / 8 * product_flops(64, 128, 128);
  const double inside = chunks * product_flops(64, 64, 128) / 2;
  compare(s, {.name = "gated_delta",
              .input = random(s, {kTokens, layout.width()}),
              .upstream = random(s, {kTokens, layout.value_heads * layout.value_dim}),
              .here =
                  [=](const auto& x, Backward& backward) {
                    backward = [=](const auto& dy) {
                      return gated_delta_backward(dy, x, gates, decay, layout, sequences).qkv;
                    };
                    return gated_delta(x, gates, decay, layout, sequences);
                  },
              .forward_flops = 3 * with_state + 4 * inside,
              .together_flops = 11 * with_state + 16 * inside});
}

void bench_norm(const Settings& s) {
  const auto x = random(s, {kTokens, kHidden}), delta = random(s, {kTokens, kHidden}),
             w = random(s, {kHidden}), bias = random(s, {kHidden});
  const auto here = [](const at::Tensor& add, const NormParameters& parameters,
                       const NormOptions& options) -> Pair {
    return [=](const auto& v, Backward& backward) {
      NormStatistics statistics;
      at::Tensor sum = v;
      auto y = add.defined() ? add_norm(v, add, parameters, options, sum, &statistics)
                             : norm(v, parameters, options, &statistics);
      backward = [=](const auto& dy) { return norm_backward(dy, {}, sum, parameters, options, statistics); };
      return y;
    };
  };
  const NormOptions rms{NormKind::kRms, kEps, false}, layer{NormKind::kLayer, kEps, false};
  const auto upstream = random(s, {kTokens, kHidden});
  compare(s, {.name = "rms_norm",
              .input = x,
              .upstream = upstream,
              .here = here({}, {w, {}}, rms),
              .reference = way([=](const auto& v) { return reference::norm(v, {w, {}}, rms); }),
              .aten = way([=](const auto& v) { return at::rms_norm(v, {kHidden}, w, kEps); })});
  compare(s, {.name = "add_rms_norm",
              .input = x,
              .upstream = upstream,
              .here = here(delta, {w, {}}, rms),
              .reference = way([=](const auto& v) { return reference::norm(v + delta, {w, {}}, rms); }),
              .aten = way([=](const auto& v) { return at::rms_norm(v + delta, {kHidden}, w, kEps); })});
  compare(s, {.name = "layer_norm",
              .input = x,
              .upstream = upstream,
              .here = here({}, {w, bias}, layer),
              .reference = way([=](const auto& v) { return reference::norm(v, {w, bias}, layer); }),
              .aten = way([=](const auto& v) { return at::layer_norm(v, {kHidden}, w, bias, kEps); })});
}

// Backward writes over gate and up.
template <typename F>
void bench_gate(const Settings& s, const char* name, Activation kind, F aten) {
  compare(s, {.name = name,
              .input = random(s, {kTokens, 2 * kInner}),
              .upstream = random(s, {kTokens, kInner}),
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto& dy) {
                      auto dv = untimed_copy(v);
                      gated_activation_backward_(dy, dv, kind);
                      return dv;
                    };
                    return gated_activation(v, kind);
                  },
              .reference = way([=](const auto& v) { return reference::gated_activation(v, kind); }),
              .aten = way([=](const auto& v) { return aten(v.slice(1, 0, kInner), v.slice(1, kInner)); })});
}

// As transformers does it.
at::Tensor clamped_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = gate.clamp_max(7);
  return (up.clamp(-7, 7) + 1) * (g * at::sigmoid(g * 1.702));
}

// Both passes write over what they are given.
void bench_rotary(const Settings& s) {
  const auto angles =
      at::outer(at::arange(kTokens) % 1024, at::pow(10000.0, at::arange(kHeadDim / 2) * (-2.0 / kHeadDim)));
  const auto cos = angles.cos(), sin = angles.sin();
  // As transformers does it: whole-width tables of the model's dtype, queries and keys each by themselves.
  const auto wide = [&](const at::Tensor& t) { return at::cat({t, t}, 1).to(s.dtype).unsqueeze(1); };
  const auto wide_cos = wide(cos), wide_sin = wide(sin);
  const auto turn = [=](const at::Tensor& x) {
    const auto halves = x.chunk(2, -1);
    const auto turned = x * wide_cos + at::cat({-halves[1], halves[0]}, -1) * wide_sin;
    return turned.reshape({kTokens, -1});
  };
  compare(s, {.name = "rotary",
              .input = random(s, {kTokens, kLayout.width()}),
              .upstream = random(s, {kTokens, kLayout.width()}),
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto& dy) {
                      return rotate_backward(HeadGradients::of(untimed_copy(dy), kLayout), cos, sin, kLayout);
                    };
                    auto out = untimed_copy(v);
                    rotate(out, cos, sin, kLayout);
                    return out;
                  },
              .reference = way([=](const auto& v) { return reference::rotary(v, cos, sin, kLayout); }),
              .aten = [=](const auto& v) -> Outputs {
                const auto heads = v.view({kTokens, -1, kHeadDim});
                return {turn(heads.slice(1, 0, kHeads)), turn(heads.slice(1, kHeads, kHeads + kKvHeads)),
                        heads.slice(1, kHeads + kKvHeads).reshape({kTokens, -1})};
              }});
}

// The other ways leave the adapters' gradients to autograd, in the model's dtype; here they are added up in
// fp32.
void bench_lora(const Settings& s, const std::string& name, std::int64_t in,
                const std::vector<std::int64_t>& outs) {
  std::int64_t out = 0;
  std::vector<LoraProjection> projections;
  for (const auto width : outs) {
    projections.push_back({out, out + width, random(s, {kRank, in}, 0.02), random(s, {width, kRank}, 0.02),
                           at::zeros({kRank, in}), at::zeros({width, kRank}), 2.0});
    out += width;
  }
  const auto w = random(s, {out, in}, 0.05);
  const auto weight = frozen_matrix(w);
  auto learned = projections;
  for (auto& p : learned) {
    p.a = p.a.clone().requires_grad_(true);
    p.b = p.b.clone().requires_grad_(true);
  }
  compare(s, {.name = "lora_linear, " + name,
              .input = random(s, {kTokens, in}),
              .upstream = random(s, {kTokens, out}),
              .here =
                  [=](const auto& x, Backward& backward) {
                    at::Tensor low_rank;
                    auto out = lora_linear(x, weight, {}, projections, std::nullopt, &low_rank);
                    backward = [=](const auto& dy) {
                      return lora_linear_backward(dy, x, low_rank, weight, projections, std::nullopt, true);
                    };
                    return out;
                  },
              .reference =
                  way([=](const auto& x) { return reference::lora_linear(x, w, {}, learned, std::nullopt); }),
              .aten = [=](const auto& x) -> Outputs {  // as PEFT does it
                Outputs parts;
                for (const auto& p : learned) {
                  parts.push_back(at::linear(x, w.slice(0, p.out_begin, p.out_end)) +
                                  at::linear(at::linear(x, p.a), p.b) * p.scale);
                }
                return parts;
              },
              .forward_flops = product_flops(kTokens, in, out),
              .together_flops = 2 * product_flops(kTokens, in, out)});
}

void bench_cross_entropy(const Settings& s) {
  const auto head = random(s, {kVocabulary, kHidden}, 0.05);
  const auto labels = at::randint(kVocabulary, {kTokens}, at::kLong);
  const auto loss = [=](const at::Tensor& x) {
    return at::cross_entropy_loss(at::linear(x, head).to(at::kFloat), labels, {}, at::Reduction::Sum)
        .view({1, 1});
  };
  const auto flops = product_flops(kTokens, kHidden, kVocabulary);
  const auto hidden = random(s, {kTokens, kHidden});
  compare(s, {.name = "token_nll",
              .input = hidden,
              .here = forward_alone(
                  [=](const auto& x) { return token_nll(x, head, {}, labels, {}).sum().view({1, 1}); }),
              .reference = way([=](const auto& x) {
                return reference::token_nll(x, head, {}, labels, {}).sum().view({1, 1});
              }),
              .aten = way(loss),
              .forward_flops = flops,
              .passes = Passes::kForward});
  compare(s, {.name = "linear_cross_entropy",
              .input = hidden,
              .upstream = at::ones({1, 1}),
              .here =
                  [=](const auto& x, Backward& backward) {
                    const auto found = linear_cross_entropy(x, head, {}, labels, 1.0, {}, true);
                    backward = [=](const auto&) { return found.hidden; };
                    return found.loss.view({1, 1});
                  },
              .reference = way([=](const auto& x) {
                return reference::token_nll(x, head, {}, labels, {}).sum().view({1, 1});
              }),
              .aten = way(loss),
              .together_flops = 2 * flops,
              .passes = Passes::kTogether});  // the gradient is made in forward
}

// Products by themselves: of frozen weights, of the adapters, and of adapters' gradients.
void bench_matmul(const Settings& s) {
  struct Shape {
    std::int64_t m, k, n;
  };
  const auto named = [](const char* kind, const Shape& shape) {
    return std::string("matmul_") + kind + " " + std::to_string(shape.m) + "x" + std::to_string(shape.k) +
           "x" + std::to_string(shape.n);
  };
  for (const Shape shape : {Shape{kTokens, kHidden, 2 * kInner},
                            {kTokens, kInner, kHidden},
                            {kTokens, kHidden, 1024},
                            {kTokens, kHidden, 3 * kRank},
                            {kTokens, kRank, kInner}}) {
    const auto w = random(s, {shape.n, shape.k});
    compare(s, {.name = named("nt", shape),
                .input = random(s, {shape.m, shape.k}),
                .here = forward_alone([=](const auto& x) { return matmul_nt(x, w); }),
                .aten = way([=](const auto& x) { return at::mm(x.detach(), w.t()); }),
                .forward_flops = product_flops(shape.m, shape.k, shape.n),
                .passes = Passes::kForward});
  }
  for (const Shape shape : {Shape{kTokens, 2 * kInner, kHidden}, {kTokens, kInner, kRank}}) {
    const auto w = random(s, {shape.k, shape.n});
    compare(s, {.name = named("nn", shape),
                .input = random(s, {shape.m, shape.k}),
                .here = forward_alone([=](const auto& x) { return matmul_nn(x, w); }),
                .aten = way([=](const auto& x) { return at::mm(x.detach(), w); }),
                .forward_flops = product_flops(shape.m, shape.k, shape.n),
                .passes = Passes::kForward});
  }
  for (const Shape shape : {Shape{3 * kRank, kTokens, kHidden}, {kInner, kTokens, kRank}}) {
    const auto y = random(s, {kTokens, shape.m});
    compare(s, {.name = named("tn", shape),
                .input = random(s, {kTokens, shape.n}),
                .here = forward_alone([=](const auto& x) { return matmul_tn(y, x); }),
                .aten = way([=](const auto& x) { return at::mm(y.t(), x.detach()); }),
                .forward_flops = product_flops(shape.m, shape.k, shape.n),
                .passes = Passes::kForward});
  }
}

void bench_all(const Settings& s) {
  std::printf("\n%s, %d threads, %d repeats, copies move %.1f GB/s\n\n", c10::toString(s.dtype), s.threads,
              s.repeats, s.copy_bandwidth / 1e9);
  lorikeet::bench::print_head();
  bench_attention(s, "2 x 1024", {0, 1024, 2048});
  bench_attention(s, "ragged", {0, 900, 1417, 1718, 1868, 1968, 2031, 2048});
  bench_sinks(s);
  bench_gated_delta(s);
  bench_norm(s);
  bench_gate(s, "gated_activation", Activation::kSilu,
             [](const auto& gate, const auto& up) { return at::silu(gate) * up; });
  bench_gate(s, "clamped_swiglu", Activation::kClampedSwiglu, clamped_swiglu);
  bench_rotary(s);
  bench_lora(s, "q k v", kHidden, {512, 256, 256});
  bench_lora(s, "gate up", kHidden, {kInner, kInner});
  bench_lora(s, "down", kInner, {kHidden});
  bench_cross_entropy(s);
  lorikeet::bench::bench_delta_net(s);
  lorikeet::bench::bench_latent_heads(s);
  lorikeet::bench::bench_state_space(s);
  bench_matmul(s);
}

int number(const std::string& text) {
  const int value = std::stoi(text);
  if (value < 1) throw std::runtime_error("[bench_ops] expected a number above 0, got " + text);
  return value;
}

void run(const std::vector<std::string>& arguments) {
  Settings settings;
  std::vector<at::ScalarType> dtypes{at::kFloat, at::kBFloat16};
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& key = arguments[i];
    if (i + 1 == arguments.size()) throw std::runtime_error("[bench_ops] " + key + " has no value");
    const std::string& value = arguments[i + 1];
    if (key == "--threads") {
      settings.threads = number(value);
    } else if (key == "--repeats") {
      settings.repeats = number(value);
    } else if (key == "--dtype" && (value == "fp32" || value == "bf16")) {
      dtypes = {value == "fp32" ? at::kFloat : at::kBFloat16};
    } else if (key == "--only") {
      settings.only = value;
    } else {
      throw std::runtime_error("[bench_ops] unknown: " + key + " " + value +
                               "; expected --threads N, --repeats N, --dtype fp32|bf16 or --only NAME");
    }
  }
  at::set_num_threads(settings.threads);
  at::manual_seed(1);
  settings.copy_bandwidth = lorikeet::bench::measured_copy_bandwidth();
  for (const auto dtype : dtypes) {
    settings.dtype = dtype;
    bench_all(settings);
  }
}

}  // namespace

int main(int argc, char** argv) {
  lorikeet::ops::install_cpu_allocator();  // as the programs do
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
