#include "ops/attention/attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "ops/attention_runs.h"
#include "ops/forced_products.h"
#include "support/catch.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet::ops;
using lorikeet::Error;
using namespace lorikeet::test;
using Case = AttentionCase;

namespace {

const Tolerance kTolerances[] = {
    {at::kDouble, 1e-12, 1e-12, "sums in fp64"},
    {at::kFloat, 3e-6, 6e-6, "fp32 sums over a sequence, exp to 2 units in the last place"},
    {at::kBFloat16, 4e-3, 1e-2,
     "roundings to 8 bits: of the output, which backward reads (dO . O), and, where products are native, of "
     "probabilities and of the scores' gradients"},
    {at::kHalf, 1e-3, 2e-3, "one rounding to 11 bits each way"},
};

}  // namespace

TEST_CASE("the attention reference has the gradient of finite differences") {
  for (const auto& c : kAttentionCases) {
    INFO(c.name);
    const auto sequences = sequences_of(c.lengths);
    const auto result =
        gradcheck([&](const auto& in) { return reference::attention(in[0], c.layout, sequences, c.options); },
                  {random_qkv(c).requires_grad_(true)}, 24);
    INFO(result.where);
    CHECK(result.worst < 1e-7);
  }
}

TEST_CASE("attention agrees with its reference in every dtype, forward and backward") {
  for (const auto& c : kAttentionCases) {
    for (const auto& tolerance : kTolerances) {
      INFO(c.name << ", " << c10::toString(tolerance.dtype) << ": " << tolerance.why);
      const auto qkv = random_qkv(c).to(tolerance.dtype), upstream = random_upstream(c).to(tolerance.dtype);
      const auto fused = run_fused(c, qkv, upstream);
      const auto expected = run_reference(c, qkv, upstream);
      CHECK(fused.out.scalar_type() == tolerance.dtype);
      CHECK(relative_distance(fused.out, expected.out) < tolerance.forward);
      CHECK(relative_distance(fused.grad, expected.grad) < tolerance.backward);
    }
  }
}

TEST_CASE("attention of bf16 agrees with its reference whichever way a CPU multiplies it") {
  const auto& tolerance = kTolerances[2];
  for (const auto choice : {HalfProducts::kNative, HalfProducts::kWidened}) {
    const Forced forced(choice);
    for (const std::int64_t head_dim : {5, 18, 72, 80, 128, 256}) {  // 5: its rows can't be paired
      INFO("heads of " << head_dim << (choice == HalfProducts::kNative ? ", native" : ", widened"));
      const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
      for (const auto& options : {AttentionOptions{scale}, AttentionOptions{scale, true, 70, 2.0}}) {
        const Case c{"", {4, 2, head_dim}, {1, 150, 64, 37}, options};
        const auto qkv = random_qkv(c).to(at::kBFloat16), upstream = random_upstream(c).to(at::kBFloat16);
        const auto fused = run_fused(c, qkv, upstream);
        const auto expected = run_reference(c, qkv, upstream);
        CHECK(relative_distance(fused.out, expected.out) < tolerance.forward);
        CHECK(relative_distance(fused.grad, expected.grad) < tolerance.backward);
      }
    }
  }
}

TEST_CASE("the bf16 tolerance notices a wrong scale, mask, window, cap or sequence boundary") {
  const Case right{"right", {2, 1, 16}, {60, 40}, {kScale, true, 0, 0}};
  const auto qkv = random_qkv(right), upstream = random_upstream(right);
  const auto expected = run_reference(right, qkv, upstream);
  const std::vector<Case> wrongs = {
      {"scale off by 5%", {2, 1, 16}, {60, 40}, {kScale * 1.05}},
      {"not causal", {2, 1, 16}, {60, 40}, {kScale, false}},
      {"window one key short of all", {2, 1, 16}, {60, 40}, {kScale, true, 50}},
      {"a cap far above the scores", {2, 1, 16}, {60, 40}, {kScale, true, 0, 5}},
      {"boundary off by one", {2, 1, 16}, {61, 39}, {kScale}},
      {"sequences not separated", {2, 1, 16}, {100}, {kScale}},
  };
  for (const auto& wrong : wrongs) {
    INFO(wrong.name);
    const auto found = run_reference(wrong, qkv, upstream);
    CHECK(relative_distance(found.out, expected.out) > 4e-3);
    CHECK(relative_distance(found.grad, expected.grad) > 1e-2);
  }
}

TEST_CASE("a sequence's attention is the same bits whatever it is packed with") {
  const HeadLayout layout{4, 2, 16};
  const AttentionOptions options{kScale};
  const auto qkv =
      at::randn({150, layout.width()}, at::make_generator<at::CPUGeneratorImpl>(23)).to(at::kBFloat16);
  const auto packed = attention(qkv, layout, sequences_of({40, 0, 37, 73}), options);
  const auto alone = attention(qkv.slice(0, 40, 77).contiguous(), layout, sequences_of({37}), options);
  CHECK(at::equal(packed.slice(0, 40, 77), alone));
}

TEST_CASE("attention gives the same bits when run again") {
  const Case c{"", {4, 2, 16}, {300, 5, 64, 128, 40}, {kScale}};
  const auto qkv = random_qkv(c).to(at::kFloat), upstream = random_upstream(c).to(at::kFloat);
  const auto first = run_fused(c, qkv, upstream);
  for (int i = 0; i < 5; ++i) {
    const auto again = run_fused(c, qkv, upstream);
    CHECK(at::equal(first.out, again.out));
    CHECK(at::equal(first.grad, again.grad));
  }
}

TEST_CASE("attention over nothing at all is nothing") {
  const HeadLayout layout{2, 1, 8};
  const auto qkv = at::empty({0, layout.width()});
  CHECK(attention(qkv, layout, sequences_of({}), {kScale}).sizes() == at::IntArrayRef({0, 16}));
  CHECK(attention(qkv, layout, sequences_of({0, 0}), {kScale}).sizes() == at::IntArrayRef({0, 16}));
}

TEST_CASE("attention passes a NaN on instead of hiding it") {
  const Case c{"", {1, 1, 8}, {20}, {kScale}};
  auto qkv = random_qkv(c).to(at::kFloat);
  qkv[10][3] = std::nan("");
  CHECK(attention(qkv, c.layout, sequences_of(c.lengths), c.options)[10].isnan().any().item<bool>());
}

TEST_CASE("cached attention of the last positions equals attention of the whole") {
  for (const auto& options : {AttentionOptions{kScale}, AttentionOptions{kScale, true, 9},
                              AttentionOptions{kScale, true, 0, 1.5}}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const HeadLayout layout{4, 2, 16};
      const std::vector<std::int32_t> lengths{70, 5, 33};
      const auto sequences = sequences_of(lengths);
      const auto qkv = leaf({108, layout.width()}, 24).detach().to(dtype);
      const auto whole = attention(qkv, layout, sequences, options);
      const auto heads = qkv.view({108, 8, 16});
      const std::vector<std::int32_t> queries{1, 0, 20};
      std::vector<at::Tensor> q, k, v, expected;
      std::vector<std::int32_t> cu_q{0};
      for (std::size_t s = 0; s < 3; ++s) {
        const auto begin = sequences.cu_seqlens[s], end = sequences.cu_seqlens[s + 1];
        q.push_back(heads.slice(0, end - queries[s], end).slice(1, 0, 4));
        k.push_back(heads.slice(0, begin, end).slice(1, 4, 6));
        v.push_back(heads.slice(0, begin, end).slice(1, 6, 8));
        expected.push_back(whole.slice(0, end - queries[s], end));
        cu_q.push_back(cu_q.back() + queries[s]);
      }
      const double tolerance = dtype == at::kBFloat16 ? 4e-3 : 2e-6;
      const auto dense = at::cat(q);
      CHECK(relative_distance(attention_cached(dense, k, v, cu_q, options), at::cat(expected)) < tolerance);
      // Rows of a wider tensor, as a model has them.
      const auto rows = at::cat({dense, dense}, 1).slice(1, 0, 4);
      CHECK(relative_distance(attention_cached(rows, k, v, cu_q, options), at::cat(expected)) < tolerance);
    }
  }
}

TEST_CASE("a long prompt without a kernel of its dtype is attended to block by block") {
  const HeadLayout layout{4, 2, 4};
  const std::int64_t length = 2300;  // more scores than a block has
  const auto qkv = at::randn({length, layout.width()}, at::kDouble);
  const auto heads = qkv.view({length, 8, 4});
  for (const auto& options : {AttentionOptions{kScale}, AttentionOptions{kScale, true, 700}}) {
    const auto out = attention_cached(heads.slice(1, 0, 4), {heads.slice(1, 4, 6)}, {heads.slice(1, 6, 8)},
                                      {0, static_cast<std::int32_t>(length)}, options);
    const auto whole = attention(qkv, layout, sequences_of({static_cast<std::int32_t>(length)}), options);
    CHECK(relative_distance(out, whole) < 1e-12);
  }
}

TEST_CASE("attention names what doesn't fit") {
  const HeadLayout layout{4, 2, 16};
  const auto qkv = at::randn({10, layout.width()});
  CHECK_THROWS_AS(attention(qkv, {4, 3, 16}, sequences_of({10}), {}), Error);
  CHECK_THROWS_AS(attention(qkv, layout, sequences_of({9}), {}), Error);
  CHECK_THROWS_AS(attention(qkv, layout, Sequences{{0, 12, 10}, {}, 12}, {}), Error);
  CHECK_THROWS_AS(attention(qkv, layout, sequences_of({10}), {1, true, -1}), Error);
  CHECK_THROWS_AS(
      attention_cached(at::randn({3, 4, 16}), {at::randn({2, 2, 16})}, {at::randn({2, 2, 16})}, {0, 3}, {}),
      Error);
}
