#include "ops/experts/routing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/reference_ops.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::test;
using Catch::Contains;
using ops::Routing;
using ops::RowWeights;

namespace {

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

at::Tensor integers(const std::vector<std::int64_t>& values) { return at::tensor(values); }

// In fp64: tokens' sums of their experts' rows, and the rows of tokens.
at::Tensor combined(const at::Tensor& rows, const Routing& routing, RowWeights weights) {
  const std::int64_t tokens = routing.places.size(0), k = routing.places.size(1);
  const at::Tensor of_tokens =
      rows.to(at::kDouble).index_select(0, routing.places.flatten()).view({tokens, k, rows.size(1)});
  if (weights == RowWeights::kNone) return of_tokens.sum(1);
  return (of_tokens * routing.weights.to(at::kDouble).unsqueeze(2)).sum(1);
}
at::Tensor spread(const at::Tensor& x, const Routing& routing, RowWeights weights) {
  const std::int64_t tokens = routing.places.size(0), k = routing.places.size(1);
  at::Tensor copies = x.to(at::kDouble).unsqueeze(1).expand({tokens, k, x.size(1)});
  if (weights == RowWeights::kRouter) copies = copies * routing.weights.to(at::kDouble).unsqueeze(2);
  at::Tensor rows = at::zeros({tokens * k, x.size(1)}, at::kDouble);
  return rows.index_copy_(0, routing.places.flatten(), copies.reshape({tokens * k, x.size(1)}));
}

}  // namespace

TEST_CASE("experts' rows follow each other by expert, then by token, and each token knows its own") {
  const at::Tensor logits = at::tensor({0.0, 3.0, 1.0, -1.0,    // experts 1 and 2
                                        2.0, 0.0, 1.0, -1.0,    // 0 and 2
                                        0.0, 1.0, -1.0, -2.0})  // 1 and 0
                                .view({3, 4});
  const Routing routing = ops::route(logits, {.per_token = 2, .normalized = true});
  CHECK(at::equal(routing.experts, integers({1, 2, 0, 2, 1, 0}).view({3, 2})));
  CHECK(routing.host_ends() == std::vector<std::int64_t>{2, 4, 6, 6});  // nobody goes to the last
  CHECK(at::equal(routing.tokens, integers({1, 2, 0, 2, 0, 1})));
  CHECK(at::equal(routing.places, integers({2, 4, 0, 5, 3, 1}).view({3, 2})));
  const at::Tensor probabilities = logits.softmax(1).gather(1, routing.experts);
  CHECK(relative_distance(routing.weights, probabilities / probabilities.sum(1, true)) < 1e-6);
  CHECK(relative_distance(ops::route(logits, {.per_token = 2, .normalized = false}).weights, probabilities) <
        1e-6);
}

TEST_CASE("no tokens route to nowhere, and all experts may be a token's") {
  const Routing none = ops::route(at::zeros({0, 3}), {.per_token = 2});
  CHECK(none.host_ends() == std::vector<std::int64_t>{0, 0, 0});
  CHECK(ops::spread_rows(at::zeros({0, 5}), none, RowWeights::kRouter).sizes() == at::IntArrayRef{0, 5});
  CHECK(ops::combine_rows(at::zeros({0, 5}), none, RowWeights::kRouter).sizes() == at::IntArrayRef{0, 5});
  const Routing all = ops::route(random({7, 3}, 1, at::kFloat), {.per_token = 3});
  CHECK(all.host_ends() == std::vector<std::int64_t>{7, 14, 21});
}

TEST_CASE("the reference of experts passes finite differences, for all that it multiplies") {
  for (const bool normalized : {true, false}) {
    CAPTURE(normalized);
    const auto experts = [&](const std::vector<at::Tensor>& in) {
      return ops::reference::gated_experts(in[0], in[1], in[2], in[3],
                                           {.per_token = 2, .normalized = normalized});
    };
    const auto found =
        gradcheck(experts, {leaf({6, 5}, 1), leaf({4, 5}, 2), leaf({4, 6, 5}, 3), leaf({4, 5, 3}, 4)});
    CAPTURE(found.where);
    CHECK(found.worst < 1e-8);
  }
}

TEST_CASE("the gradient of logits is that of the weights' formula, whether they are normalised or not") {
  for (const bool normalized : {true, false}) {
    CAPTURE(normalized);
    const ops::RouterOptions options{.per_token = 3, .normalized = normalized};
    const at::Tensor logits = leaf({9, 6}, 1), d_weights = random({9, 3}, 2, at::kDouble);
    const Routing routing = ops::route(logits.detach(), options);
    at::Tensor weights = logits.softmax(1).gather(1, routing.experts);
    if (normalized) weights = weights / weights.sum(1, true);
    const at::Tensor expected = torch::autograd::grad({(weights * d_weights).sum()}, {logits})[0];
    const at::Tensor weighted = d_weights * routing.weights;
    CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, options), expected) <
          1e-12);
    const at::Tensor unweighted = d_weights;
    CHECK(relative_distance(ops::route_backward(unweighted, logits.detach(), routing, options), expected) >
          1e-2);
    const ops::RouterOptions other{.per_token = 3, .normalized = !normalized};
    CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, other), expected) > 1e-2);
  }
}

TEST_CASE("experts are chosen and weighed by sigmoids, and a bias counts for the choice alone") {
  // Scores 1/2, 3/4, 1/4; the bias makes the last the best one.
  const at::Tensor logits = at::tensor({0.0, std::log(3.0), -std::log(3.0)}, at::kDouble).view({1, 3});
  const at::Tensor bias = at::tensor({0.0, -0.1, 0.6}, at::kFloat);
  using ops::RouterScores;
  ops::RouterOptions options{.per_token = 2, .normalized = false, .scores = RouterScores::kSigmoid};
  CHECK(at::equal(ops::route(logits, options).experts, at::tensor({1, 0}).view({1, 2})));
  CHECK(at::equal(ops::route(logits, options, bias).experts, at::tensor({2, 1}).view({1, 2})));
  const auto weights = [&] { return ops::route(logits, options, bias).weights; };
  CHECK(relative_distance(weights(), at::tensor({0.25, 0.75}, at::kDouble).view({1, 2})) < 1e-12);
  options.normalized = true;
  options.sum_eps = 1;
  options.scale = 3;
  CHECK(relative_distance(weights(), at::tensor({0.375, 1.125}, at::kDouble).view({1, 2})) < 1e-12);
  options.scores = RouterScores::kSoftmax;  // 3/13, 9/13, 1/13, to which no number is added
  CHECK(relative_distance(weights(), at::tensor({0.3, 2.7}, at::kDouble).view({1, 2})) < 1e-12);
  CHECK_THROWS_WITH(ops::route(logits, options, at::zeros({2})),
                    Catch::Contains("a floating bias for each expert"));
  // A sum that is next to nothing is taken for a number: logits 200 below the others'.
  options = {.per_token = 2, .least_sum = 1e-12};
  const at::Tensor far = at::tensor({200.0, 0.0, 0.0}).view({1, 3}), away = at::tensor({-2.0, 0.0, 0.0});
  CHECK(ops::route(far, options, away).weights.abs().max().item<float>() == 0);
}

TEST_CASE("a token's experts are chosen from its best groups alone, scored by their best or their two best") {
  // Groups of three. Best scores: 0, 2, 1, 3; sums of the two best: 1, 0, 2, 3.
  const at::Tensor logits =
      at::tensor({1.0, 0.9, -9.0, 1.5, -2.0, -2.0, 1.3, 1.2, -9.0, 2.0, 0.8, 0.7}, at::kDouble).view({1, 12});
  const auto experts = [&](const ops::RouterOptions& options, const at::Tensor& bias = {}) {
    const Routing routing = ops::route(logits, options, bias);
    CHECK(relative_distance(routing.weights, logits.softmax(1).gather(1, routing.experts)) < 1e-12);
    return std::get<0>(routing.experts.sort());
  };
  ops::RouterOptions options{.per_token = 3, .normalized = false, .groups = 4, .groups_per_token = 2};
  CHECK(at::equal(experts(options), at::tensor({3, 9, 10}).view({1, 3})));
  options.group_top = 2;
  CHECK(at::equal(experts(options), at::tensor({6, 7, 9}).view({1, 3})));
  options.groups_per_token = 1;
  CHECK(at::equal(experts(options), at::tensor({9, 10, 11}).view({1, 3})));
  // With a bias that is below every score the experts outside are still not chosen.
  CHECK(at::equal(experts(options, at::full({12}, -5.0)), at::tensor({9, 10, 11}).view({1, 3})));
  const at::Tensor bias = at::zeros({12}).index_fill_(0, integers({4, 5}), 2.0);
  CHECK(at::equal(experts(options, bias), at::tensor({3, 4, 5}).view({1, 3})));
  options.groups_per_token = 4;
  CHECK(at::equal(experts(options), at::tensor({3, 6, 9}).view({1, 3})));
}

TEST_CASE("choices within groups are those of a plain computation, for many tokens") {
  const at::Tensor logits = random({50, 24}, 1, at::kDouble), bias = random({24}, 2, at::kDouble) * 0.2;
  for (const std::int64_t top : {1, 2}) {
    CAPTURE(top);
    const ops::RouterOptions options{.per_token = 4,
                                     .scores = ops::RouterScores::kSigmoid,
                                     .groups = 6,
                                     .groups_per_token = 3,
                                     .group_top = top};
    const Routing routing = ops::route(logits, options, bias);
    const at::Tensor choice = logits.sigmoid() + bias;
    const at::Tensor first = std::get<0>(choice.view({50, 6, 4}).sort(2, /*descending=*/true));
    const at::Tensor order = std::get<1>(first.narrow(2, 0, top).sum(2).sort(1, /*descending=*/true));
    int otherwise = 0;
    for (std::int64_t t = 0; t < 50; ++t) {
      std::vector<std::pair<double, std::int64_t>> allowed;
      for (std::int64_t j = 0; j < 3; ++j) {
        const std::int64_t group = order[t][j].item<std::int64_t>();
        for (std::int64_t e = 4 * group; e < 4 * group + 4; ++e)
          allowed.emplace_back(-choice[t][e].item<double>(), e);
      }
      std::sort(allowed.begin(), allowed.end());
      std::vector<std::int64_t> best;
      for (std::size_t j = 0; j < 4; ++j) best.push_back(allowed[j].second);
      CHECK(at::equal(routing.experts[t], integers(best)));
      otherwise += at::equal(std::get<1>(choice[t].topk(4)), integers(best)) ? 0 : 1;
    }
    CHECK(otherwise > 10);  // tokens for which the groups decide
  }
  CHECK(ops::route(at::zeros({0, 6}), {.groups = 3}).experts.size(0) == 0);
}

TEST_CASE("the reference of experts in groups passes finite differences, and chooses as routing does") {
  for (const auto scores : {ops::RouterScores::kSigmoid, ops::RouterScores::kSoftmax}) {
    const bool sigmoid = scores == ops::RouterScores::kSigmoid;
    CAPTURE(sigmoid);
    const ops::RouterOptions options{.per_token = 2,
                                     .normalized = sigmoid,
                                     .scores = scores,
                                     .scale = 1.5,
                                     .groups = 3,
                                     .groups_per_token = 1,
                                     .group_top = sigmoid ? 2 : 1};
    const at::Tensor bias = sigmoid ? random({6}, 5, at::kDouble) * 0.2 : at::Tensor();
    const auto experts = [&](const std::vector<at::Tensor>& in) {
      return ops::reference::gated_experts(in[0], in[1], in[2], in[3], options, bias);
    };
    const std::vector<at::Tensor> in{leaf({6, 5}, 1), leaf({6, 5}, 2), leaf({6, 6, 5}, 3),
                                     leaf({6, 5, 3}, 4)};
    const auto found = gradcheck(experts, in);
    CAPTURE(found.where);
    CHECK(found.worst < 1e-8);
    // The same of the experts that `route` chooses, with its weights.
    const at::NoGradGuard no_grad;
    const Routing routing = ops::route(in[0].matmul(in[1].t()), options, bias);
    at::Tensor sum = at::zeros({6, 5}, at::kDouble);
    for (std::int64_t t = 0; t < 6; ++t) {
      for (std::int64_t j = 0; j < 2; ++j) {
        const auto e = routing.experts[t][j].item<std::int64_t>();
        const auto up = in[2][e].matmul(in[0][t]).chunk(2);
        sum[t] += routing.weights[t][j] * in[3][e].matmul(at::silu(up[0]) * up[1]);
      }
    }
    CHECK(relative_distance(experts(in), sum) < 1e-12);
    ops::RouterOptions all = options;
    all.groups_per_token = 3;
    CHECK(relative_distance(ops::reference::gated_experts(in[0], in[1], in[2], in[3], all, bias), sum) >
          1e-3);
  }
}

TEST_CASE("the gradient of logits is that of the formula of sigmoids, scales and chosen experts too") {
  const at::Tensor bias = at::tensor({0.0, 0.4, -0.4, 0.2, 0.0, -0.3}, at::kDouble);
  for (const auto scores : {ops::RouterScores::kSigmoid, ops::RouterScores::kSoftmax}) {
    for (const bool normalized : {true, false}) {
      const bool sigmoid = scores == ops::RouterScores::kSigmoid;
      CAPTURE(sigmoid, normalized);
      const ops::RouterOptions options{.per_token = 3,
                                       .normalized = normalized,
                                       .scores = scores,
                                       .sum_eps = sigmoid ? 0.3 : 0,
                                       .scale = 2.5};
      const at::Tensor logits = leaf({9, 6}, 1), d_weights = random({9, 3}, 2, at::kDouble);
      const Routing routing = ops::route(logits.detach(), options, bias);
      at::Tensor weights = (sigmoid ? logits.sigmoid() : logits.softmax(1)).gather(1, routing.experts);
      if (normalized) weights = weights / (weights.sum(1, true) + options.sum_eps);
      weights = weights * 2.5;
      CHECK(relative_distance(routing.weights, weights.detach()) < 1e-12);
      const at::Tensor expected = torch::autograd::grad({(weights * d_weights).sum()}, {logits})[0];
      const at::Tensor weighted = d_weights * routing.weights;
      CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, options), expected) <
            1e-12);
      ops::RouterOptions other = options;
      other.scores = sigmoid ? ops::RouterScores::kSoftmax : ops::RouterScores::kSigmoid;
      CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, other), expected) >
            1e-2);
      if (!normalized) continue;
      other = options;
      other.scale = 1;
      CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, other), expected) >
            1e-2);
    }
  }
}

TEST_CASE(
    "weights are multiplied by numbers of their experts, and the gradient of logits goes through that") {
  for (const bool normalized : {true, false}) {
    CAPTURE(normalized);
    const ops::RouterOptions options{.per_token = 3, .normalized = normalized};
    const at::Tensor logits = leaf({9, 6}, 1), d_weights = random({9, 3}, 2, at::kDouble);
    const at::Tensor scales = at::tensor({0.5, -2.0, 1.5, 0.0, 3.0, 0.25}, at::kDouble);
    Routing routing = ops::route(logits.detach(), options);
    ops::scale_weights(routing, scales.to(at::kFloat));  // which holds them exactly
    at::Tensor weights = logits.softmax(1).gather(1, routing.experts);
    if (normalized) weights = weights / weights.sum(1, true);
    weights = weights * scales.index({routing.experts});
    CHECK(relative_distance(routing.weights, weights.detach()) < 1e-12);
    const at::Tensor expected = torch::autograd::grad({(weights * d_weights).sum()}, {logits})[0];
    const at::Tensor weighted = d_weights * routing.weights;
    CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, options), expected) <
          1e-12);
    if (!normalized) continue;
    routing.unscaled.reset();
    CHECK(relative_distance(ops::route_backward(weighted, logits.detach(), routing, options), expected) >
          1e-2);
  }
  Routing routing = ops::route(at::zeros({2, 3}), {.per_token = 2});
  CHECK_THROWS_WITH(ops::scale_weights(routing, at::ones({2})),
                    Catch::Contains("expected a floating number for each expert"));
}

TEST_CASE("rows of experts and products of rows are fp64's to their dtype's last bits, at every width") {
  // fp32: sums of a few hundred terms in another order. 16 bits: one rounding of the result.
  const Tolerance tolerances[] = {{at::kDouble, 1e-14, 1e-14, "another order of sums"},
                                  {at::kFloat, 1e-6, 2e-6, "another order of sums"},
                                  {at::kBFloat16, 4e-3, 2e-6, "one rounding of rows, none of products"},
                                  {at::kHalf, 5e-4, 2e-6, "one rounding of rows, none of products"}};
  for (const Tolerance& limit : tolerances) {
    for (const std::int64_t width : {1, 15, 64, 200, 257}) {
      CAPTURE(limit.dtype, width, limit.why);
      const bool wide = limit.dtype == at::kDouble;
      const Routing routing =
          ops::route(random({33, 7}, 1, wide ? at::kDouble : at::kFloat), {.per_token = 3});
      const at::Tensor rows = random({99, width}, 2, limit.dtype),
                       others = random({99, width}, 3, limit.dtype);
      const at::Tensor x = random({33, width}, 4, limit.dtype);
      const at::Tensor products = (rows.to(at::kDouble) * others.to(at::kDouble)).sum(1);
      const at::Tensor before = rows.clone();
      CHECK(relative_distance(ops::row_products(rows, others), products) < limit.backward);
      CHECK(at::equal(rows, before));
      for (const RowWeights weights : {RowWeights::kNone, RowWeights::kRouter}) {
        const at::Tensor sums = combined(rows, routing, weights), copies = spread(x, routing, weights);
        for (const bool reference : {false, true}) {
          ops::set_reference_ops(reference);
          const at::Tensor found = ops::combine_rows(rows, routing, weights);
          const at::Tensor found_rows = ops::spread_rows(x, routing, weights);
          ops::set_reference_ops(false);
          CHECK(relative_distance(found, sums) < limit.forward);
          CHECK(relative_distance(found_rows, copies) < limit.forward);
        }
        // Another token's rows, and weights that are left out, are far from that.
        Routing shifted = routing;
        shifted.places = routing.places.roll(1, 0).contiguous();
        shifted.tokens = routing.tokens.roll(1, 0).contiguous();
        CHECK(relative_distance(ops::combine_rows(rows, shifted, weights), sums) > 0.1);
        CHECK(relative_distance(ops::spread_rows(x, shifted, weights), copies) > 0.1);
        const auto other = weights == RowWeights::kNone ? RowWeights::kRouter : RowWeights::kNone;
        CHECK(relative_distance(ops::combine_rows(rows, routing, other), sums) > 0.1);
        CHECK(relative_distance(ops::spread_rows(x, routing, other), copies) > 0.1);
      }
    }
  }
}

TEST_CASE("values of rows are given back to the tokens that they belong to") {
  const Routing routing = ops::route(random({5, 4}, 1, at::kFloat), {.per_token = 2});
  const at::Tensor tokens = ops::of_places(routing.tokens, routing);
  CHECK(at::equal(tokens, at::arange(5).unsqueeze(1).expand({5, 2})));
}

TEST_CASE("logits and options that don't fit are errors") {
  CHECK_THAT(error_text([] { ops::route(at::zeros({3}), {}); }),
             Contains("floating logits [tokens, experts]"));
  CHECK_THAT(error_text([] { ops::route(at::zeros({3, 2}, at::kLong), {}); }), Contains("floating logits"));
  CHECK_THAT(error_text([] { ops::route(at::zeros({3, 2}), {.per_token = 3}); }), Contains("got 3 of 2"));
  const at::Tensor six = at::zeros({3, 6});
  CHECK_THAT(error_text([&] { ops::route(six, {.groups = 4}); }), Contains("4 groups of 6 experts"));
  CHECK_THAT(error_text([&] { ops::route(six, {.groups = 2, .groups_per_token = 3}); }),
             Contains("at least one group a token") && Contains("got 3 of 2"));
  CHECK_THAT(error_text([&] { ops::route(six, {.groups = 6, .group_top = 2}); }), Contains("got 2 of 1"));
  CHECK_THAT(error_text([&] { ops::route(six, {.per_token = 3, .groups = 3}); }), Contains("got 3 of 2"));
  CHECK_THAT(error_text([] { ops::row_products(at::zeros({3, 2}), at::zeros({2, 2})); }),
             Contains("two matrices of one shape"));
  const Routing routing = ops::route(at::zeros({3, 2}), {.per_token = 1});
  CHECK_THAT(error_text([&] { ops::combine_rows(at::zeros({4, 2}), routing, RowWeights::kNone); }),
             Contains("rows [tokens * experts of a token, width]"));
  CHECK_THAT(error_text([&] { ops::spread_rows(at::zeros({4, 2}), routing, RowWeights::kNone); }),
             Contains("rows [tokens, width]"));
}
