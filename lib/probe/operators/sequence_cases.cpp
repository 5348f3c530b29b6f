#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/causal_conv/causal_conv.h"
#include "ops/gated_conv/gated_conv.h"
#include "ops/gated_delta/gated_delta.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

using Ends = std::vector<std::int32_t>;

// None, one token, and lengths on either side of the border of the gated delta rule's chunks of 64 tokens.
const Ends& around_a_chunk() {
  static const Ends ends{0, 0, 1, 64, 65, 193};
  return ends;
}

// Some heads forget all of a state from a token to the next, others hardly anything.
ops::DeltaDecay decay_of(const Place& place, std::int64_t heads) {
  return {.a_log = at::linspace(4.6, -5, heads, at::kFloat).to(place.wide()).to(place.device),
          .dt_bias = place.wide_normal({heads}, 4)};
}

Results delta(const Place& place, const ops::DeltaLayout& layout, const Ends& ends) {
  const std::int64_t tokens = ends.back(), heads = layout.value_heads;
  const ops::Sequences sequences = place.sequences(ends);
  const ops::DeltaDecay decay = decay_of(place, heads);
  const at::Tensor qkv = place.normal({tokens, layout.width()}, 1);
  const at::Tensor gates = place.normal({tokens, 2 * heads}, 2);
  const at::Tensor dout = place.normal({tokens, heads * layout.value_dim}, 3);
  const ops::DeltaGradients gradients = ops::gated_delta_backward(dout, qkv, gates, decay, layout, sequences);
  // One by one: what is small in one of them may be large in another.
  Results results = {{"output", ops::gated_delta(qkv, gates, decay, layout, sequences)},
                     {"gradient of q", gradients.qkv.slice(1, 0, layout.k_begin())},
                     {"gradient of k", gradients.qkv.slice(1, layout.k_begin(), layout.v_begin())},
                     {"gradient of v", gradients.qkv.slice(1, layout.v_begin())},
                     {"gradient of b", gradients.gates.slice(1, 0, heads)}};
  for (std::int64_t head = 0; head < heads; ++head)
    results.emplace_back("gradient of a of head " + std::to_string(head),
                         gradients.gates.narrow(1, heads + head, 1));
  return results;
}

// Prompts, of which one has no token, then a token each and several, as generation has them.
Results continued(const Place& place, const ops::DeltaLayout& layout) {
  std::vector<at::Tensor> states(3);
  Results results;
  std::uint64_t seed = 1;
  for (const Ends& ends : {Ends{0, 0, 70, 75}, Ends{0, 1, 2, 3}, Ends{0, 65, 65, 68}}) {
    const std::string pass = std::to_string(results.size() / 2);
    const at::Tensor qkv = place.normal({ends.back(), layout.width()}, seed++);
    const at::Tensor gates = place.normal({ends.back(), 2 * layout.value_heads}, seed++);
    results.emplace_back("output of pass " + pass,
                         ops::gated_delta(qkv, gates, decay_of(place, layout.value_heads), layout,
                                          place.sequences(ends), &states));
    results.emplace_back("states behind pass " + pass, at::stack(states));
  }
  return results;
}

void add_delta(std::vector<OperatorCase>& cases) {
  struct Form {
    const char* name;
    ops::DeltaLayout layout;
    Ends ends;
  };
  const Form forms[] = {
      {"keys of 128, values of 40", {1, 2, 128, 40}, around_a_chunk()},
      {"keys of 96, values of 40", {2, 4, 96, 40}, around_a_chunk()},
      {"heads of 128, one sequence", {1, 2, 128, 128}, {0, 130}},
      {"keys of 64 that three value heads share", {1, 3, 64, 96}, {0, 64, 129, 129, 330}},
      {"heads that no kernel takes", {1, 2, 21, 12}, {0, 9, 9, 40}},
      {"no tokens", {1, 2, 16, 8}, {0, 0}},
  };
  for (const Form& form : forms) {
    cases.push_back({"gated delta rule", form.name,
                     [form](const Place& at) { return delta(at, form.layout, form.ends); }});
  }
  cases.push_back({"gated delta rule", "going on from states",
                   [](const Place& at) { return continued(at, {1, 2, 128, 40}); }});
}

struct Convolution {
  const char* name;
  std::int64_t channels, taps;
  Ends ends;
  bool wide_weight = false;
};

// Kernels of 2 to 4 taps whose channels fit 16-byte accesses, and others; sequences shorter than the taps. A
// thread of a kernel has one row where there are few numbers, and several in the form with the most.
const std::vector<Convolution>& convolutions() {
  static const std::vector<Convolution> all = {
      {"264 channels, 4 taps", 264, 4, around_a_chunk()},
      {"1,032 channels, 3 taps in fp32", 1032, 3, {0, 2, 17, 17, 50, 83}, true},
      {"4,096 channels, 4 taps, 600 rows", 4096, 4, {0, 1, 64, 65, 300, 600}},
      {"8 channels, 2 taps, many rows", 8, 2, {0, 1, 1200}},
      {"21 channels, 5 taps", 21, 5, {0, 0, 3, 40}},
      {"no tokens", 16, 4, {0, 0}},
  };
  return all;
}

at::Tensor weight_of(const Place& place, const Convolution& form) {
  return form.wide_weight ? place.wide_normal({form.channels, form.taps}, 2)
                          : place.normal({form.channels, form.taps}, 2);
}

// Rows that lie in wider ones, as those of a gated delta net's projection do.
Results causal(const Place& place, const Convolution& form) {
  constexpr std::int64_t kBeside = 16;
  const std::int64_t tokens = form.ends.back(), width = form.channels + 2 * kBeside;
  const ops::Sequences sequences = place.sequences(form.ends);
  const at::Tensor weight = weight_of(place, form);
  const at::Tensor x = place.normal({tokens, width}, 1).narrow(1, kBeside, form.channels);
  const at::Tensor before =
      place.normal({static_cast<std::int64_t>(form.ends.size()) - 1, form.taps - 1, form.channels}, 3);
  at::Tensor gradient = place.normal({tokens, width}, 5);
  ops::causal_conv_backward(place.normal({tokens, form.channels}, 4), x, weight, sequences,
                            gradient.narrow(1, kBeside, form.channels));
  const at::Tensor bias =
      form.wide_weight ? place.wide_normal({form.channels}, 6) : place.normal({form.channels}, 6);
  at::Tensor biased_gradient = place.normal({tokens, width}, 7);
  ops::causal_conv_backward(place.normal({tokens, form.channels}, 4), x, weight, sequences,
                            biased_gradient.narrow(1, kBeside, form.channels), bias);
  return {{"output", ops::causal_conv(x, weight, sequences)},
          {"output after other rows", ops::causal_conv(x, weight, sequences, before)},
          {"output with a bias after other rows", ops::causal_conv(x, weight, sequences, before, bias)},
          {"gradient of x and what lies beside it", gradient},
          {"the same with a bias", biased_gradient}};
}

Results gated(const Place& place, const Convolution& form) {
  const std::int64_t tokens = form.ends.back(), channels = form.channels;
  const ops::Sequences sequences = place.sequences(form.ends);
  const at::Tensor weight = weight_of(place, form);
  const at::Tensor projected = place.normal({tokens, 3 * channels}, 1);
  const at::Tensor before =
      place.normal({static_cast<std::int64_t>(form.ends.size()) - 1, form.taps - 1, channels}, 3);
  at::Tensor again;
  const at::Tensor gradient =
      ops::gated_conv_backward(place.normal({tokens, channels}, 4), projected, weight, sequences, &again);
  return {{"output", ops::gated_conv(projected, weight, sequences)},
          {"output, again", again},
          {"output after other rows", ops::gated_conv(projected, weight, sequences, before)},
          {"gradient of b", gradient.narrow(1, 0, channels)},
          {"gradient of c", gradient.narrow(1, channels, channels)},
          {"gradient of x", gradient.narrow(1, 2 * channels, channels)}};
}

}  // namespace

std::vector<OperatorCase> sequence_cases() {
  std::vector<OperatorCase> cases;
  add_delta(cases);
  for (const auto& [op, run] : {std::pair{"causal convolution", &causal}, {"gated convolution", &gated}}) {
    for (const Convolution& form : convolutions())
      cases.push_back({op, form.name, [&form, run = run](const Place& at) { return run(at, form); }});
  }
  return cases;
}

}  // namespace lorikeet::probe
