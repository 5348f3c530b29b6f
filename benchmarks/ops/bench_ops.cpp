// Times every operator, forward and backward, beside its reference and beside plain ATen, for the 57M model
// that benchmarks/ uses: hidden 512, 8 heads, 4 key heads, head_dim 64, intermediate 1408, vocabulary 32000,
// 2048 tokens.
//   bench_ops [--threads N] [--repeats N] [--dtype bf16|fp32] [--only NAME]
// The ways of doing one thing are interleaved; median and spread (smallest to largest) over the repeats.
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/gated_mlp/gated_mlp.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/lora/lora_linear.h"
#include "ops/matmul/matmul.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"

namespace {

using namespace lorikeet::ops;

constexpr std::int64_t kTokens = 2048, kHidden = 512, kHeads = 8, kKvHeads = 4, kHeadDim = 64, kInner = 1408;
constexpr std::int64_t kVocabulary = 32000, kRank = 16;

struct Settings {
  int threads = 2, repeats = 7;
  at::ScalarType dtype = at::kBFloat16;
  std::string only;
};

struct Way {
  std::string name;
  std::function<void()> run;
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One line a way: median, smallest, largest in ms, and GFLOP/s at the median where `flops` is given.
void compare(const Settings& settings, const std::string& what, double flops, const std::vector<Way>& ways) {
  if (!settings.only.empty() && what.find(settings.only) == std::string::npos) return;
  std::vector<std::vector<double>> times(ways.size());
  for (int repeat = -1; repeat < settings.repeats; ++repeat) {  // the first round warms up
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double seconds = seconds_of(ways[i].run);
      if (repeat >= 0) times[i].push_back(seconds * 1e3);
    }
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    const double median = times[i][times[i].size() / 2];
    std::printf("| %s | %s | %.2f | %.2f-%.2f | ", what.c_str(), ways[i].name.c_str(), median,
                times[i].front(), times[i].back());
    if (flops > 0) std::printf("%.0f", flops / median / 1e6);
    std::printf(" |\n");
    std::fflush(stdout);
  }
}

at::Tensor random(const Settings& settings, at::IntArrayRef sizes, double scale = 1) {
  return (at::randn(sizes) * scale).to(settings.dtype);
}

// Forward and backward of f from a fresh leaf.
std::function<void()> both(const at::Tensor& input, const at::Tensor& upstream,
                           std::function<at::Tensor(const at::Tensor&)> f) {
  return [=] {
    const auto x = input.detach().requires_grad_(true);
    f(x).backward(upstream);
  };
}

void bench_matmul(const Settings& s) {
  struct Shape {
    std::int64_t m, k, n;
  };
  for (const auto& [m, k, n] : {Shape{kTokens, kHidden, 2 * kInner}, Shape{kTokens, kInner, kHidden},
                                Shape{kTokens, kHidden, 1024}, Shape{512, kHidden, kVocabulary}}) {
    const auto x = random(s, {m, k}), w = random(s, {n, k}), y = random(s, {m, n});
    const auto name = std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
    const double flops = 2.0 * static_cast<double>(m * k * n);
    compare(s, "matmul nt " + name, flops,
            {{"here", [&] { matmul_nt(x, w); }}, {"ATen", [&] { at::mm(x, w.t()); }}});
    compare(s, "matmul nn " + name, flops,
            {{"here", [&] { matmul_nn(y, w); }}, {"ATen", [&] { at::mm(y, w); }}});
  }
}

void bench_attention(const Settings& s) {
  const HeadLayout layout{kHeads, kKvHeads, kHeadDim};
  const auto qkv = random(s, {kTokens, layout.width()}), upstream = random(s, {kTokens, kHeads * kHeadDim});
  for (const int count : {4, 2, 32}) {
    Sequences sequences;
    const auto length = kTokens / count;
    for (int i = 0; i <= count; ++i) sequences.cu_seqlens.push_back(static_cast<std::int32_t>(i * length));
    sequences.max_seqlen = length;
    const AttentionOptions options{0.125};
    const auto name = std::to_string(count) + "x" + std::to_string(length);
    // Causal: half of the pairs; forward 2 products, backward 5.
    const double pairs = 0.5 * static_cast<double>(length * length * count * kHeads * kHeadDim);
    const auto plain = [&](const at::Tensor& x) {
      const auto heads = x.view({count, length, kHeads + 2 * kKvHeads, kHeadDim}).transpose(1, 2);
      const auto out = at::scaled_dot_product_attention(
          heads.slice(1, 0, kHeads), heads.slice(1, kHeads, kHeads + kKvHeads),
          heads.slice(1, kHeads + kKvHeads), {}, 0.0, /*is_causal=*/true, options.scale, /*enable_gqa=*/true);
      return out.transpose(1, 2).reshape({kTokens, kHeads * kHeadDim});
    };
    const auto fused = [&](const at::Tensor& x) { return attention(x, layout, sequences, options); };
    const auto composed = [&](const at::Tensor& x) {
      return reference::attention(x, layout, sequences, options);
    };
    compare(s, "attention forward " + name, 4 * pairs,
            {{"here", [&] { fused(qkv); }}, {"ATen", [&] { plain(qkv); }}, {"reference", [&] {
                                                                              composed(qkv);
                                                                            }}});
    compare(s, "attention both ways " + name, 14 * pairs,
            {{"here", both(qkv, upstream, fused)},
             {"ATen", both(qkv, upstream, plain)},
             {"reference", both(qkv, upstream, composed)}});
  }
}

void bench_cross_entropy(const Settings& s) {
  const auto hidden = random(s, {kTokens, kHidden}), head = random(s, {kVocabulary, kHidden}, 0.05);
  const auto weight = std::make_shared<ResidentWeight>(head);
  const auto rows = at::arange(kTokens, at::kLong), labels = at::randint(kVocabulary, {kTokens}, at::kLong);
  const double flops = 4.0 * static_cast<double>(kTokens * kHidden * kVocabulary);
  const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& f) {
    return [&hidden, f] { f(hidden.detach().requires_grad_(true)).backward(); };
  };
  const auto fused = [&](const at::Tensor& x) {
    return linear_cross_entropy(x, weight, {}, rows, labels, 1.0 / kTokens, {}, {});
  };
  const auto plain = [&](const at::Tensor& x) {
    return at::cross_entropy_loss(at::linear(x, head).to(at::kFloat), labels);
  };
  const auto composed = [&](const at::Tensor& x) {
    return reference::token_nll(x, head, {}, rows, labels, {}).sum() / kTokens;
  };
  compare(s, "cross-entropy both ways", flops,
          {{"here", run(fused)}, {"ATen", run(plain)}, {"reference", run(composed)}});
}

void bench_lora(const Settings& s) {
  struct Group {
    const char* name;
    std::int64_t in;
    std::vector<std::int64_t> outs;
  };
  for (const auto& [name, in, outs] :
       {Group{"q,k,v", kHidden, {512, 256, 256}}, Group{"gate,up", kHidden, {1408, 1408}},
        Group{"down", kInner, {512}}}) {
    std::int64_t out = 0;
    std::vector<LoraProjection> projections;
    for (const auto width : outs) {
      projections.push_back({out, out + width, random(s, {kRank, in}, 0.1), random(s, {width, kRank}, 0.1),
                             at::zeros({kRank, in}), at::zeros({width, kRank}), 2.0});
      out += width;
    }
    const auto x = random(s, {kTokens, in}), w = random(s, {out, in}, 0.05),
               upstream = random(s, {kTokens, out});
    const auto weight = std::make_shared<ResidentWeight>(w);
    auto learned = projections;  // plain ATen computes the adapters' gradients by autograd
    for (auto& p : learned) {
      p.a = p.a.clone().requires_grad_(true);
      p.b = p.b.clone().requires_grad_(true);
    }
    const auto fused = [&](const at::Tensor& input) {
      return lora_linear(input, weight, {}, projections, std::nullopt, {});
    };
    const auto plain = [&](const at::Tensor& input) {
      std::vector<at::Tensor> parts;
      for (const auto& p : learned) {
        parts.push_back(at::linear(input, w.slice(0, p.out_begin, p.out_end)) +
                        at::linear(at::linear(input, p.a), p.b) * p.scale);
      }
      return at::cat(parts, 1);
    };
    const auto composed = [&](const at::Tensor& input) {
      return reference::lora_linear(input, w, {}, learned, std::nullopt);
    };
    const double flops = 4.0 * static_cast<double>(kTokens * in * out);
    compare(s, std::string("lora_linear both ways ") + name, flops,
            {{"here", both(x, upstream, fused)},
             {"ATen", both(x, upstream, plain)},
             {"reference", both(x, upstream, composed)}});
  }
}

void bench_elementwise(const Settings& s) {
  const auto x = random(s, {kTokens, kHidden}), w = random(s, {kHidden}), up = random(s, {kTokens, kHidden});
  compare(s, "rms_norm both ways", 0,
          {{"here", both(x, up, [&](const auto& v) { return rms_norm(v, w, 1e-5); })},
           {"ATen", both(x, up, [&](const auto& v) { return at::rms_norm(v, {kHidden}, w, 1e-5); })},
           {"reference", both(x, up, [&](const auto& v) { return reference::rms_norm(v, w, 1e-5); })}});
  const auto gate_up = random(s, {kTokens, 2 * kInner}), gate_grad = random(s, {kTokens, kInner});
  compare(s, "gated_activation both ways", 0,
          {{"here",
            both(gate_up, gate_grad, [](const auto& v) { return gated_activation(v, Activation::kSilu); })},
           {"ATen", both(gate_up, gate_grad,
                         [](const auto& v) { return at::silu(v.slice(1, 0, kInner)) * v.slice(1, kInner); })},
           {"reference", both(gate_up, gate_grad, [](const auto& v) {
              return reference::gated_activation(v, Activation::kSilu);
            })}});
  const HeadLayout layout{kHeads, kKvHeads, kHeadDim};
  const auto qkv = random(s, {kTokens, layout.width()}), qkv_grad = random(s, {kTokens, layout.width()});
  const auto cos = at::randn({kTokens, kHeadDim / 2}), sin = at::randn({kTokens, kHeadDim / 2});
  compare(s, "rotary both ways", 0,
          {{"here", both(qkv, qkv_grad, [&](const auto& v) { return rotary(v, cos, sin, layout); })},
           {"reference",
            both(qkv, qkv_grad, [&](const auto& v) { return reference::rotary(v, cos, sin, layout); })}});
  const LoraDropout dropout{0.1, 1, 2, 3, at::zeros({kTokens}, at::kLong), at::arange(kTokens, at::kLong)};
  compare(s, "dropout", 0,
          {{"here", [&] { apply_dropout(x, dropout); }}, {"ATen", [&] { at::dropout(x, 0.1, true); }}});
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--threads") settings.threads = std::atoi(value.c_str());
    if (key == "--repeats") settings.repeats = std::max(1, std::atoi(value.c_str()));
    if (key == "--dtype") settings.dtype = value == "fp32" ? at::kFloat : at::kBFloat16;
    if (key == "--only") settings.only = value;
  }
  // As the program does it: a freed block is used again, which spares the page faults of fresh ones.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  at::set_num_threads(settings.threads);
  at::manual_seed(1);
  std::printf("%s, %d threads, %d repeats, bf16 multiplied natively: %s\n\n", c10::toString(settings.dtype),
              settings.threads, settings.repeats,
              multiplies_natively(at::kBFloat16, at::Device(at::kCPU)) ? "yes" : "no");
  std::printf("| what | way | median ms | spread ms | GFLOP/s |\n|---|---|---|---|---|\n");
  bench_matmul(settings);
  bench_attention(settings);
  bench_cross_entropy(settings);
  bench_lora(settings);
  bench_elementwise(settings);
  return 0;
}
