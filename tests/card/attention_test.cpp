// Attention on a card through each of ATen's kernels against the CPU: what is handed to them, and what is
// made of their results.
#include <ATen/ATen.h>

#include "card/report.h"
#include "ops/attention/attention.h"
#include "ops/attention/cuda.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet;
using lorikeet::test::relative_distance;

namespace {

const at::Device kSecond("cuda:1");

struct Case {
  const char* name;
  ops::HeadLayout layout;
  std::vector<std::int32_t> ends;
  ops::AttentionOptions options;
};

const std::vector<Case> kCases = {
    {"one sequence", {4, 4, 16}, {0, 70}, {0.25}},
    {"grouped heads, sequences of all lengths", {6, 2, 16}, {0, 0, 33, 34, 66, 66, 90}, {0.25}},
    {"one key head", {4, 1, 16}, {0, 33, 80}, {0.25}},
    {"window", {4, 2, 16}, {0, 50, 57}, {0.25, true, 9}},
    {"both directions", {4, 2, 16}, {0, 50, 57}, {0.25, false}},
    {"soft cap", {4, 2, 16}, {0, 50, 57}, {0.25, true, 0, 1.5}},
};

std::int64_t calls(const std::string& name) {
  const auto& operators = card::report().operators;
  const auto found = operators.find("aten::" + name);
  return found == operators.end() ? 0 : found->second;
}

struct Inputs {
  Inputs(const Case& c, at::ScalarType dtype) {
    sequences.cu_seqlens = c.ends;
    for (std::size_t s = 0; s + 1 < c.ends.size(); ++s)
      sequences.max_seqlen = std::max<std::int64_t>(sequences.max_seqlen, c.ends[s + 1] - c.ends[s]);
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    qkv = at::randn({c.ends.back(), c.layout.width()}, generator).to(dtype);
    dout = at::randn({c.ends.back(), c.layout.heads * c.layout.head_dim}, generator).to(dtype);
  }
  ops::Sequences on_card() const {
    ops::Sequences copy = sequences;
    copy.cu_seqlens_device = at::tensor(sequences.cu_seqlens, at::kInt).to(kSecond);
    return copy;
  }
  ops::Sequences sequences;
  at::Tensor qkv, dout;
};

struct Results {
  at::Tensor out, gradient;
};

Results attend(const Case& c, const at::Tensor& qkv, const at::Tensor& dout,
               const ops::Sequences& sequences) {
  ops::AttentionStatistics statistics;
  const at::Tensor out = ops::attention(qkv, c.layout, sequences, c.options, &statistics);
  CHECK(statistics.lse.numel() == c.layout.heads * qkv.size(0));
  return {out,
          ops::pack(ops::attention_backward(dout, qkv, out, statistics, c.layout, sequences, c.options))};
}

}  // namespace

TEST_CASE("attention on a card gives the CPU's results in each dtype, through the kernel that takes it") {
  for (const auto& c : kCases) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(c.name << ", " << c10::toString(dtype));
      const Inputs in(c, dtype);
      const Results cpu = attend(c, in.qkv, in.dout, in.sequences);
      card::reset_report();
      const Results on_card = attend(c, in.qkv.to(kSecond), in.dout.to(kSecond), in.on_card());
      // libtorch's exp, by which the made-up card's kernels compute, is off by 2e-5 in some processes' first
      // call.
      const double tolerance = dtype == at::kFloat ? 5e-5 : 1e-2;
      CHECK(relative_distance(on_card.out.cpu(), cpu.out) < tolerance);
      CHECK(relative_distance(on_card.gradient.cpu(), cpu.gradient) < tolerance);
      CHECK(card::report().hazards.empty());
      const bool library = c.options.soft_cap == 0;
      // What no kernel of ATen's takes is multiplied in 16 bits all the same.
      CHECK((calls("bmm.dtype") > 0) == (!library && dtype != at::kFloat));
      CHECK((calls("bmm.out") > 0) == (!library && dtype == at::kFloat));
      CHECK(calls("_flash_attention_backward") == (library && dtype != at::kFloat));
      CHECK(calls("_efficient_attention_backward") == (library && dtype == at::kFloat));
    }
  }
}

TEST_CASE(
    "sequences of one length go through cuDNN's attention on a card, unless all has to be deterministic") {
  for (const bool causal : {true, false}) {
    const Case c{"", {2, 1, 64}, {0, 256, 512}, {0.125, causal}};
    for (const bool deterministic : {false, true}) {
      const Inputs in(c, at::kBFloat16);
      const Results cpu = attend(c, in.qkv, in.dout, in.sequences);
      const at::Tensor qkv = in.qkv.to(kSecond), dout = in.dout.to(kSecond);
      const ops::Sequences sequences = in.on_card();
      at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
      card::reset_report();
      const Results on_card = attend(c, qkv, dout, sequences);
      at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
      CHECK(card::report().hazards.empty());
      CHECK(card::report().waits.empty());
      CHECK(calls("_cudnn_attention_forward") == !deterministic);
      CHECK(calls("_cudnn_attention_backward") == !deterministic);
      CHECK(calls("_flash_attention_backward") == deterministic);
      CHECK(relative_distance(on_card.out.cpu(), cpu.out) < 1e-2);
      CHECK(relative_distance(on_card.gradient.cpu(), cpu.gradient) < 1e-2);
    }
  }
}

TEST_CASE("the efficient kernels take fp16, whose statistics they keep by token") {
  const Case& c = kCases[1];
  const Inputs in(c, at::kHalf);
  const Results cpu = attend(c, in.qkv, in.dout, in.sequences);
  const ops::Sequences sequences = in.on_card();
  const at::Tensor qkv = in.qkv.to(kSecond), dout = in.dout.to(kSecond);
  card::reset_report();
  ops::AttentionStatistics statistics;
  const at::Tensor out = ops::cuda::efficient_forward(qkv, c.layout, sequences, c.options, &statistics);
  CHECK(statistics.lse.sizes() == at::IntArrayRef({6, 90}));
  const at::Tensor gradient =
      ops::pack(ops::cuda::efficient_backward(dout, qkv, out, statistics, c.layout, sequences, c.options));
  CHECK(card::report().hazards.empty());
  CHECK(card::report().waits.empty());
  CHECK(relative_distance(out.cpu(), cpu.out) < 1e-2);
  CHECK(relative_distance(gradient.cpu(), cpu.gradient) < 1e-2);
}

TEST_CASE("a token that reads a cache on a card reads it as it is") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t window : {0, 7}) {
      INFO(c10::toString(dtype) << ", window " << window);
      const ops::AttentionOptions options{0.25, true, window};
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(6);
      const at::Tensor q = at::randn({4, 4, 16}, generator).to(dtype);
      std::vector<at::Tensor> k, v, card_k, card_v;
      for (const std::int64_t length : {40, 9}) {
        // Views of a buffer that has room for more, as a cache has them.
        k.push_back(at::randn({64, 2, 16}, generator).to(dtype).narrow(0, 0, length));
        v.push_back(at::randn({64, 2, 16}, generator).to(dtype).narrow(0, 0, length));
        card_k.push_back(k.back().to(kSecond));
        card_v.push_back(v.back().to(kSecond));
      }
      const std::vector<std::int32_t> cu_q{0, 1, 4};
      const at::Tensor cpu = ops::attention_cached(q, k, v, cu_q, options);
      const at::Tensor card_q = q.to(kSecond);
      card::reset_report();
      const at::Tensor on_card = ops::attention_cached(card_q, card_k, card_v, cu_q, options);
      CHECK(calls("_flash_attention_forward") == (dtype == at::kFloat ? 0 : 2));
      CHECK(card::report().waits.empty());
      CHECK(card::report().hazards.empty());
      CHECK(relative_distance(on_card.cpu(), cpu) < (dtype == at::kFloat ? 1e-5 : 1e-2));
    }
  }
}

TEST_CASE("efficient attention refuses what the card's kernels refuse") {
  const at::Tensor ends = at::tensor({0, 4}, at::kInt).to(kSecond);
  const auto attend = [&](const at::Tensor& rows, const at::Tensor& keys, std::int64_t longest,
                          std::int64_t mask, std::optional<std::int64_t> window) {
    return std::get<0>(at::_efficient_attention_forward(rows, keys, keys, {}, ends, ends, longest, longest,
                                                        0.0, mask, true, 0.25, {}, window));
  };
  const at::Tensor rows = at::ones({1, 4, 2, 16}).to(kSecond);
  CHECK_THROWS_WITH(attend(rows.to(at::kDouble), rows.to(at::kDouble), 4, 1, {}),
                    Catch::Contains("no kernel"));
  CHECK_THROWS_WITH(attend(rows, rows.slice(2, 0, 1), 4, 1, {}), Catch::Contains("alike"));
  CHECK_THROWS_WITH(attend(rows.slice(3, 0, 10), rows.slice(3, 0, 10), 4, 1, {}), Catch::Contains("aligned"));
  CHECK_THROWS_WITH(attend(rows, rows, 5, 1, {}), Catch::Contains("Invalid max_seqlen"));
  CHECK_THROWS_WITH(attend(rows, rows, 3, 1, {}), Catch::Contains("a sequence of 4 tokens"));
  CHECK_THROWS_WITH(attend(rows, rows, 4, 0, 2), Catch::Contains("causal"));
  CHECK(at::allclose(attend(rows, rows, 4, 1, {}).cpu(), rows.cpu()));
}
