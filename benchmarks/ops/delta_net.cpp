#include "delta_net.h"

#include <ATen/ATen.h>

#include "ops/causal_conv/causal_conv.h"
#include "ops/gated_conv/gated_conv.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/norm_of_gated/norm_of_gated.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace lorikeet::bench {
namespace {

using namespace lorikeet::ops;
using test::Backward;
using Outputs = std::vector<at::Tensor>;

constexpr std::int64_t kTokens = 2048, kChannels = 6144, kProjected = 8192, kTaps = 4;
constexpr std::int64_t kWidth = 2048, kHead = 128;
constexpr double kEps = 1e-6;

at::Tensor random(const Settings& settings, at::IntArrayRef sizes) {
  return at::randn(sizes).to(settings.dtype);
}

double bytes_of(std::int64_t matrices, const at::Tensor& matrix) {
  return static_cast<double>(matrices) * static_cast<double>(matrix.nbytes());
}

// Without a bias as gated delta nets have it, with one as Mamba does.
void bench_convolution(const Settings& s, const char* name, const at::Tensor& bias) {
  const Sequences sequences{.cu_seqlens = {0, kTokens}, .max_seqlen = kTokens};
  const at::Tensor x = random(s, {kTokens, kProjected}).narrow(1, 0, kChannels);
  const at::Tensor upstream = random(s, {kTokens, kChannels}), weight = random(s, {kChannels, kTaps});
  const at::Tensor gradient = at::empty({kTokens, kProjected}, x.options()).narrow(1, 0, kChannels);
  compare(s, {.name = name,
              .input = x,
              .upstream = upstream,
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto& dy) {
                      causal_conv_backward(dy, v, weight, sequences, gradient, bias);
                      return gradient;
                    };
                    return causal_conv(v, weight, sequences, {}, bias);
                  },
              .reference = [=](const auto& v) -> Outputs {
                return {reference::causal_conv(v, weight, sequences, {}, bias)};
              },
              .aten = [=](const auto& v) -> Outputs {  // as transformers does it
                const at::Tensor y =
                    at::conv1d(v.t().unsqueeze(0), weight.unsqueeze(1), bias, 1, kTaps - 1, 1, kChannels);
                return {at::silu(y[0].narrow(1, 0, kTokens).t())};
              },
              .forward_bytes = bytes_of(2, upstream),
              .together_bytes = bytes_of(5, upstream)});
}

// LFM2's, whose rows are [b | c | x].
void bench_gated_convolution(const Settings& s) {
  constexpr std::int64_t kWidth = 2048, kShortTaps = 3;
  const Sequences sequences{.cu_seqlens = {0, kTokens}, .max_seqlen = kTokens};
  const at::Tensor projected = random(s, {kTokens, 3 * kWidth}), upstream = random(s, {kTokens, kWidth});
  const at::Tensor weight = random(s, {kWidth, kShortTaps});
  compare(s, {.name = "gated_conv",
              .input = projected,
              .upstream = upstream,
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto& dy) { return gated_conv_backward(dy, v, weight, sequences); };
                    return gated_conv(v, weight, sequences);
                  },
              .reference = [=](const auto& v) -> Outputs {
                return {reference::gated_conv(v, weight, sequences)};
              },
              .aten = [=](const auto& v) -> Outputs {  // as transformers does it
                const auto parts = v.t().unsqueeze(0).chunk(3, 1);
                const at::Tensor sums =
                    at::conv1d(parts[0] * parts[2], weight.unsqueeze(1), {}, 1, kShortTaps - 1, 1, kWidth)
                        .narrow(2, 0, kTokens);
                return {(parts[1] * sums)[0].t().contiguous()};
              },
              .forward_bytes = bytes_of(4, upstream),
              .together_bytes = bytes_of(11, upstream)});
}

// An operator of two matrices, both of which have a gradient; backward writes the first's over dy.
using Gated = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& gate)>;
using GatedBackward = std::function<void(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                                         const at::Tensor& dgate)>;

void bench_gated(const Settings& s, const char* name, const Gated& here, const GatedBackward& here_backward,
                 const Gated& reference, const Gated& aten) {
  const at::Tensor upstream = random(s, {kTokens, kWidth}), gradients = at::stack({upstream, upstream});
  const auto way = [](const Gated& gated) -> Way {
    return [=](const auto& v) -> Outputs { return {gated(v[0], v[1])}; };
  };
  compare(s, {.name = name,
              .input = random(s, {2, kTokens, kWidth}),
              .upstream = upstream,
              .here =
                  [=](const auto& v, Backward& backward) {
                    backward = [=](const auto&) {
                      const at::Tensor both = untimed_copy(gradients);
                      here_backward(both[0], v[0], v[1], both[1]);
                      return both;
                    };
                    return here(v[0], v[1]);
                  },
              .reference = way(reference),
              .aten = way(aten),
              .forward_bytes = bytes_of(3, upstream),
              .together_bytes = bytes_of(8, upstream)});
}

}  // namespace

void bench_delta_net(const Settings& s) {
  bench_gated_convolution(s);
  bench_convolution(s, "causal_conv", {});
  bench_convolution(s, "causal_conv with a bias", random(s, {kChannels}));
  const at::Tensor weight = random(s, {kHead});
  bench_gated(
      s, "gated_norm", [=](const auto& x, const auto& z) { return gated_norm(x, z, weight, kEps); },
      [=](const auto& dy, const auto& x, const auto& z, const auto& dz) {
        gated_norm_backward_(dy, x, z, weight, kEps, dz);
      },
      [=](const auto& x, const auto& z) { return reference::gated_norm(x, z, weight, kEps); },
      [=](const auto& x, const auto& z) {
        return at::rms_norm(x.unflatten(1, {-1, kHead}), {kHead}, weight, kEps).flatten(1) * at::silu(z);
      });
  // Mamba 2's, one group as wide as a row and eight.
  const at::Tensor row_weight = random(s, {kWidth});
  for (const auto& [name, groups] :
       {std::pair{"norm_of_gated", std::int64_t{1}}, {"norm_of_gated, 8 groups", 8}}) {
    bench_gated(
        s, name,
        [=, groups = groups](const auto& x, const auto& z) {
          return norm_of_gated(x, z, row_weight, groups, kEps);
        },
        [=, groups = groups](const auto& dy, const auto& x, const auto& z, const auto& dz) {
          norm_of_gated_backward_(dy, x, z, row_weight, groups, kEps, dz);
        },
        [=, groups = groups](const auto& x, const auto& z) {
          return reference::norm_of_gated(x, z, row_weight, groups, kEps);
        },
        [=, groups = groups](const auto& x, const auto& z) {
          return at::rms_norm((x * at::silu(z)).unflatten(1, {groups, -1}), {kWidth / groups}, {}, kEps)
                     .flatten(1) *
                 row_weight;
        });
  }
  bench_gated(
      s, "sigmoid_gate", [](const auto& x, const auto& gate) { return sigmoid_gate(x, gate); },
      [](const auto& dy, const auto& x, const auto& gate, const auto& dgate) {
        sigmoid_gate_backward_(dy, x, gate, dgate);
      },
      [](const auto& x, const auto& gate) { return reference::sigmoid_gate(x, gate); },
      [](const auto& x, const auto& gate) { return x * at::sigmoid(gate); });
}

}  // namespace lorikeet::bench
