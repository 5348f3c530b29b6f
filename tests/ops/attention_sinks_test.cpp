#include "ops/attention/sinks.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention_runs.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/reference_ops.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using namespace lorikeet::test;
using Case = AttentionCase;

namespace {

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-12, 1e-12, "sums in fp64"},
    {at::kFloat, 3e-6, 6e-6, "fp32 sums over a sequence, exp to 2 units in the last place"},
    {at::kBFloat16, 6e-3, 1.2e-2, "as without sinks, and the output is rounded to 8 bits a second time"},
    {at::kHalf, 1.5e-3, 2.5e-3, "as without sinks, and the output is rounded to 11 bits a second time"},
};

// Of the size of scores, so that they take a part of the softmax that is neither all nor nothing. What every
// dtype holds exactly.
at::Tensor sinks_of(std::int64_t heads) {
  return (leaf({heads}, 31).detach() * 2).to(at::kBFloat16).to(at::kFloat);
}

// The statistics and the output of T tokens, H heads of D.
struct Applied {
  at::Tensor out, lse;
};

Applied random_applied(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, at::ScalarType dtype) {
  return {leaf({tokens, heads * head_dim}, 32).detach().to(dtype),
          leaf({heads, tokens}, 33).detach().mul(3).to(dtype == at::kDouble ? at::kDouble : at::kFloat)};
}

}  // namespace

TEST_CASE("a sink is a summand of the softmax's denominator and nothing else") {
  const HeadLayout layout{2, 1, 4};
  const at::Tensor qkv = leaf({3, layout.width()}, 34).detach(), sinks = at::tensor({0.7, -1.3}, at::kDouble);
  const at::Tensor out = reference::attention(qkv, layout, sequences_of({3}), {kScale}, sinks);
  const at::Tensor heads = qkv.view({3, 4, 4});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t h = 0; h < 2; ++h) {
      at::Tensor sum = at::zeros({4}, at::kDouble), all = sinks[h].exp();
      for (std::int64_t j = 0; j <= i; ++j) {
        const at::Tensor p = (heads[i][h].dot(heads[j][2]) * kScale).exp();
        sum = sum + p * heads[j][3];
        all = all + p;
      }
      CHECK(at::allclose(out.view({3, 2, 4})[i][h], sum / all, 1e-12, 1e-12));
    }
  }
}

TEST_CASE("the reference of attention with sinks has the gradient of finite differences") {
  for (const auto& c : kAttentionCases) {
    INFO(c.name);
    const auto sequences = sequences_of(c.lengths);
    const auto result = gradcheck(
        [&](const auto& in) {
          return reference::attention(in[0], c.layout, sequences, c.options, sinks_of(c.layout.heads));
        },
        {random_qkv(c).requires_grad_(true)}, 16);
    INFO(result.where);
    CHECK(result.worst < 1e-7);
  }
}

TEST_CASE("attention with sinks agrees with its reference in every dtype, forward and backward") {
  for (const auto& c : kAttentionCases) {
    const at::Tensor sinks = sinks_of(c.layout.heads);
    for (const auto& tolerance : kTolerances) {
      INFO(c.name << ", " << c10::toString(tolerance.dtype) << ": " << tolerance.why);
      const auto qkv = random_qkv(c).to(tolerance.dtype), upstream = random_upstream(c).to(tolerance.dtype);
      const auto fused = run_fused(c, qkv, upstream, sinks);
      const auto expected = run_reference(c, qkv, upstream, sinks);
      CHECK(fused.out.scalar_type() == tolerance.dtype);
      CHECK(relative_distance(fused.out, expected.out) < tolerance.forward);
      CHECK(relative_distance(fused.grad, expected.grad) < tolerance.backward);
    }
  }
}

TEST_CASE("the bf16 tolerance notices sinks that are left out, scaled, capped or of other heads") {
  const Case c{"", {4, 2, 16}, {60, 40}, {kScale}};
  const auto qkv = random_qkv(c), upstream = random_upstream(c);
  const at::Tensor sinks = sinks_of(4);
  const auto expected = run_reference(c, qkv, upstream, sinks);
  for (const auto& wrong : {at::Tensor(), sinks * kScale, sinks.tanh(), sinks.flip(0), sinks + 0.1}) {
    const auto found = run_reference(c, qkv, upstream, wrong);
    CHECK(relative_distance(found.out, expected.out) > 6e-3);
    CHECK(relative_distance(found.grad, expected.grad) > 1.2e-2);
  }
}

TEST_CASE("large sinks leave little of the values, and that to all digits") {
  const Case c{"", {4, 2, 16}, {60, 1, 40}, {kScale}};
  for (const double sink : {30.0, 12.0, -12.0, -30.0}) {
    INFO(sink);
    const at::Tensor sinks = at::full({4}, sink);
    const auto qkv = random_qkv(c).to(at::kFloat), upstream = random_upstream(c).to(at::kFloat);
    const auto fused = run_fused(c, qkv, upstream, sinks);
    const auto expected = run_reference(c, qkv, upstream, sinks);
    if (sink == 30.0) CHECK(expected.out.abs().max().item<double>() < 1e-9);
    CHECK(relative_distance(fused.out, expected.out) < 6e-6);
    CHECK(relative_distance(fused.grad, expected.grad) < 1.2e-5);
  }
}

TEST_CASE("sinks far below all scores are none, to the bit") {
  const Case c{"", {4, 2, 16}, {60, 1, 40}, {kScale}};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto qkv = random_qkv(c).to(dtype), upstream = random_upstream(c).to(dtype);
    const auto without = run_fused(c, qkv, upstream, {});
    for (const double sink : {-1e4, -std::numeric_limits<double>::infinity()}) {
      const auto with = run_fused(c, qkv, upstream, at::full({4}, sink));
      CHECK(at::equal(with.out, without.out));
      CHECK(at::equal(with.grad, without.grad));
    }
  }
}

TEST_CASE(
    "attention with sinks is the same whether its statistics are wanted, and whatever holds the sinks") {
  const Case c{"", {4, 2, 16}, {60, 0, 1, 40}, {kScale, true, 7}};
  const at::Tensor sinks = sinks_of(4);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto qkv = random_qkv(c).to(dtype);
    const auto sequences = sequences_of(c.lengths);
    AttentionStatistics statistics;
    const auto with = attention(qkv, c.layout, sequences, c.options, &statistics, sinks);
    CHECK(statistics.lse.sizes() == at::IntArrayRef({4, 101}));
    for (const auto& other :
         {sinks, sinks.to(at::kBFloat16), sinks.to(at::kDouble), at::stack({sinks, sinks}, 1).select(1, 0)})
      CHECK(at::equal(attention(qkv, c.layout, sequences, c.options, nullptr, other), with));
  }
  CHECK(attention(at::empty({0, c.layout.width()}), c.layout, sequences_of({0}), c.options, nullptr, sinks)
            .sizes() == at::IntArrayRef({0, 64}));
}

TEST_CASE("attention with sinks gives the same by plain ATen calls") {
  const Case c{"", {4, 2, 16}, {60, 40}, {kScale, true, 0, 1.5}};
  const auto qkv = random_qkv(c).to(at::kFloat), upstream = random_upstream(c).to(at::kFloat);
  const auto fused = run_fused(c, qkv, upstream, sinks_of(4));
  const ReferenceOps references;
  const auto plain = run_fused(c, qkv, upstream, sinks_of(4));
  CHECK(relative_distance(fused.out, plain.out) < 3e-6);
  CHECK(relative_distance(fused.grad, plain.grad) < 6e-6);
}

TEST_CASE("cached attention with sinks of the last positions equals that of the whole") {
  const HeadLayout layout{4, 2, 16};
  const std::vector<std::int32_t> lengths{70, 5, 1, 33}, queries{1, 0, 1, 20};
  const auto sequences = sequences_of(lengths);
  for (const auto& options : {AttentionOptions{kScale}, AttentionOptions{kScale, true, 9},
                              AttentionOptions{kScale, true, 0, 1.5}}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const auto qkv = leaf({109, layout.width()}, 24).detach().to(dtype);
      const auto whole = attention(qkv, layout, sequences, options, nullptr, sinks_of(4));
      const auto heads = qkv.view({109, 8, 16});
      std::vector<at::Tensor> q, k, v, expected;
      std::vector<std::int32_t> cu_q{0};
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        const auto begin = sequences.cu_seqlens[s], end = sequences.cu_seqlens[s + 1];
        q.push_back(heads.slice(0, end - queries[s], end).slice(1, 0, 4));
        k.push_back(heads.slice(0, begin, end).slice(1, 4, 6));
        v.push_back(heads.slice(0, begin, end).slice(1, 6, 8));
        expected.push_back(whole.slice(0, end - queries[s], end));
        cu_q.push_back(cu_q.back() + queries[s]);
      }
      const double tolerance = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kHalf ? 1e-3 : 3e-6;
      const auto found = attention_cached(at::cat(q), k, v, cu_q, options, sinks_of(4));
      CHECK(relative_distance(found, at::cat(expected)) < tolerance);
      CHECK(relative_distance(reference::attention_cached(at::cat(q), k, v, cu_q, options, sinks_of(4)),
                              at::cat(expected)) < tolerance);
    }
  }
}

TEST_CASE("outputs and statistics get their sinks alike in every dtype, number of tokens and size of heads") {
  for (const std::int64_t tokens : {0, 1, 15, 64, 131}) {
    for (const std::int64_t head_dim : {1, 5, 16, 72}) {
      for (const auto& tolerance : kTolerances) {
        INFO(tokens << " tokens, heads of " << head_dim << ", " << c10::toString(tolerance.dtype));
        const Applied found = random_applied(tokens, 3, head_dim, tolerance.dtype);
        const Applied exact{found.out.to(at::kDouble), found.lse.to(at::kDouble)};
        apply_sinks_(found.out, found.lse, sinks_of(3));
        reference::apply_sinks_(exact.out, exact.lse, sinks_of(3));
        if (tokens == 0) continue;
        CHECK(relative_distance(found.out, exact.out) < tolerance.forward);
        CHECK(relative_distance(found.lse, exact.lse) < (tolerance.dtype == at::kDouble ? 1e-14 : 1e-6));
      }
    }
  }
}

TEST_CASE("statistics may lie by tokens, or by sequences of one length") {
  const std::int64_t sequences = 3, length = 7, heads = 4;
  const Applied plain = random_applied(sequences * length, heads, 8, at::kFloat);
  const at::Tensor by_token = plain.lse.t().contiguous().t();
  const at::Tensor by_sequence =
      plain.lse.view({heads, sequences, length}).transpose(0, 1).contiguous().unsqueeze(3);
  const at::Tensor out = plain.out.clone(), other = plain.out.clone();
  apply_sinks_(out, by_token, sinks_of(heads));
  apply_sinks_(other, by_sequence, sinks_of(heads));
  apply_sinks_(plain.out, plain.lse, sinks_of(heads));
  CHECK(relative_distance(out, plain.out) < 1e-6);
  CHECK(relative_distance(other, plain.out) < 1e-6);
  CHECK(relative_distance(by_token, plain.lse) < 1e-6);
  CHECK(relative_distance(by_sequence.squeeze(3).transpose(0, 1).reshape({heads, -1}), plain.lse) < 1e-6);
}

TEST_CASE("a NaN among the statistics isn't hidden by sinks") {
  const Applied applied = random_applied(20, 2, 8, at::kFloat);
  applied.lse[1][10] = std::nan("");
  apply_sinks_(applied.out, applied.lse, sinks_of(2));
  CHECK(applied.lse.isnan().sum().item<std::int64_t>() == 1);
  CHECK(applied.out.isnan().sum().item<std::int64_t>() == 8);
}

TEST_CASE("attention names sinks that don't fit") {
  const HeadLayout layout{4, 2, 16};
  const auto qkv = at::randn({10, layout.width()});
  for (const auto& wrong : {at::zeros({3}), at::zeros({4, 1}), at::zeros({4}, at::kLong)}) {
    CHECK_THROWS_AS(attention(qkv, layout, sequences_of({10}), {}, nullptr, wrong), Error);
    CHECK_THROWS_AS(attention_cached(at::randn({2, 4, 16}), {at::randn({2, 2, 16})}, {at::randn({2, 2, 16})},
                                     {0, 2}, {}, wrong),
                    Error);
  }
  const Applied applied = random_applied(6, 2, 8, at::kFloat);
  CHECK_THROWS_AS(apply_sinks_(applied.out, applied.lse, at::zeros({3})), Error);
  CHECK_THROWS_AS(apply_sinks_(applied.out, applied.lse.t(), at::zeros({2})), Error);
  CHECK_THROWS_AS(apply_sinks_(applied.out, applied.lse.to(at::kDouble), at::zeros({2})), Error);
  CHECK_THROWS_AS(apply_sinks_(applied.out, applied.lse.view({2, 2, 3, 1}).slice(2, 0, 2), at::zeros({2})),
                  Error);
  CHECK_THROWS_AS(apply_sinks_(applied.out.t(), applied.lse, at::zeros({2})), Error);
}
