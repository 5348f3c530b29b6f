#include <ATen/ATen.h>

#include "ops/attention/attention.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {
namespace {

struct Form {
  const char* name;
  ops::HeadLayout layout;
  std::vector<std::int32_t> ends;
  ops::AttentionOptions options;
  bool sinks = false;
};

// FlashAttention's head sizes and one that no library's kernel takes; lengths around the kernels' blocks.
const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"one sequence", {4, 4, 64}, {0, 300}, {0.125}},
      {"grouped heads of 128, sequences of all lengths",
       {8, 2, 128},
       {0, 0, 129, 130, 258, 258, 271},
       {0.09}},
      // cuDNN's, where it is taken.
      {"sequences of one length", {4, 2, 128}, {0, 512, 1024}, {0.09}},
      {"one sequence of 1280, both directions", {2, 1, 64}, {0, 1280}, {0.125, false}},
      {"one key head", {4, 1, 16}, {0, 33, 98}, {0.25}},
      {"heads of 192", {4, 4, 192}, {0, 130, 200}, {0.072}},
      {"heads of 256", {2, 1, 256}, {0, 70}, {0.0625}},
      {"window", {4, 2, 64}, {0, 200, 257}, {0.125, true, 70}},
      {"window of one", {2, 1, 16}, {0, 40}, {0.25, true, 1}},
      {"both directions", {4, 2, 64}, {0, 90, 93}, {0.125, false}},
      {"soft cap", {4, 2, 16}, {0, 90, 93}, {0.25, true, 0, 1.5}},
      {"window and soft cap", {2, 1, 16}, {0, 150}, {0.25, true, 33, 1.5}},
      {"odd head_dim", {2, 1, 21}, {0, 45}, {0.2}},
      {"sinks, sequences of all lengths", {8, 2, 64}, {0, 0, 129, 130, 258}, {0.125, true, 70}, true},
      {"sinks, sequences of one length", {4, 2, 64}, {0, 512, 1024}, {0.125}, true},
      {"sinks and soft cap, heads of 80", {3, 1, 80}, {0, 90, 93}, {0.1, true, 0, 1.5}, true},
  };
  return all;
}

Results packed(const Place& place, const Form& form) {
  const std::int64_t tokens = form.ends.back();
  const ops::Sequences sequences = place.sequences(form.ends);
  const at::Tensor qkv = place.normal({tokens, form.layout.width()}, 1);
  const at::Tensor dout = place.normal({tokens, form.layout.heads * form.layout.head_dim}, 2);
  const at::Tensor sinks = form.sinks ? place.wide_normal({form.layout.heads}, 3) : at::Tensor();
  ops::AttentionStatistics statistics;
  const at::Tensor out = ops::attention(qkv, form.layout, sequences, form.options, &statistics, sinks);
  return {{"output", out},
          {"gradient of q, k and v", ops::pack(ops::attention_backward(
                                         dout, qkv, out, statistics, form.layout, sequences, form.options))},
          {"output without a backward",
           ops::attention(qkv, form.layout, sequences, form.options, nullptr, sinks)}};
}

// A token, and three, that read a cache which has room for more.
Results cached(const Place& place, std::int64_t window, bool with_sinks) {
  std::vector<at::Tensor> k, v;
  std::uint64_t seed = 2;
  for (const std::int64_t length : {200, 9}) {
    k.push_back(place.normal({256, 2, 64}, seed++).narrow(0, 0, length));
    v.push_back(place.normal({256, 2, 64}, seed++).narrow(0, 0, length));
  }
  const at::Tensor sinks = with_sinks ? place.wide_normal({4}, seed) : at::Tensor();
  return {{"output", ops::attention_cached(place.normal({4, 4, 64}, 1), k, v, {0, 1, 4},
                                           {0.125, true, window}, sinks)}};
}

}  // namespace

std::vector<OperatorCase> attention_cases() {
  std::vector<OperatorCase> cases;
  for (const Form& form : forms()) {
    cases.push_back({"attention", form.name, [&form](const Place& at) { return packed(at, form); }});
  }
  for (const std::int64_t window : {0, 7}) {
    for (const bool sinks : {false, true}) {
      cases.push_back({"attention with a cache",
                       "window " + std::to_string(window) + (sinks ? ", sinks" : ""),
                       [window, sinks](const Place& at) { return cached(at, window, sinks); }});
    }
  }
  return cases;
}

}  // namespace lorikeet::probe
