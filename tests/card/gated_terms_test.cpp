// The gated activation of products whose low-rank terms were left to it, on the fake card, against fp64.
#include <utility>
#include <vector>

#include "card/kernel_checks.h"
#include "ops/activation/activation.h"
#include "ops/dry_run.h"
#include "support/error_text.h"
#include "support/reference_ops.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr const char* kFile = "gated_terms_cuda.cu";

struct Form {
  std::int64_t tokens, width;
  std::vector<std::pair<int, int>> columns;  // of terms, in widths: {0, 1} is gate, {1, 2} up, {0, 2} both
  std::vector<std::int64_t> ranks;           // of each, and, behind them, of dy's term where it has one
};

// Terms as a group of projections leaves them: their left operands are columns of one matrix.
struct Setup {
  Setup(const Form& form, at::ScalarType dtype) {
    gate_up = random({form.tokens, 2 * form.width}, 1).to(dtype);
    dy = random({form.tokens, form.width}, 2).to(dtype);
    complete = gate_up.to(at::kDouble);
    complete_dy = dy.to(at::kDouble);
    std::int64_t all = 0, at = 0;
    for (const std::int64_t rank : form.ranks) all += rank;
    const at::Tensor left = random({form.tokens, all}, 3).to(dtype), card_left = left.to(kCard);
    for (std::size_t i = 0; i < form.ranks.size(); ++i) {
      const std::int64_t rank = form.ranks[i];
      const double scale = 0.75 + static_cast<double>(i);  // each has its own
      const bool of_gradient = i == form.columns.size();
      const auto [begin, end] = of_gradient ? std::pair{0, 1} : form.columns[i];
      at::Tensor right = random({(end - begin) * form.width, rank}, 5 + i).to(dtype);
      const at::Tensor product = at::mm(left.narrow(1, at, rank).to(at::kDouble), right.to(at::kDouble).t());
      if (of_gradient) right = right.t().contiguous();
      (of_gradient ? dy_terms : terms)
          .push_back({card_left.narrow(1, at, rank), right.to(kCard), begin * form.width, scale});
      (of_gradient ? complete_dy : complete).slice(1, begin * form.width, end * form.width) +=
          scale * product;
      at += rank;
    }
  }

  at::Tensor gate_up, dy, complete, complete_dy;  // the latter in fp64, with their terms
  std::vector<LowRankTerm> terms, dy_terms;
};

// The value of complete rows and their gradient, in fp64.
std::pair<at::Tensor, at::Tensor> expected_of(const Setup& s, Activation kind) {
  const at::Tensor x = s.complete.clone().requires_grad_(true);
  const at::Tensor y = reference::gated_activation(x, kind);
  return {y.detach(), torch::autograd::grad({y}, {x}, {s.complete_dy})[0]};
}

}  // namespace

TEST_CASE("low-rank terms that a gated activation was left are added on the way on a card") {
  const Form forms[] = {
      {37, 264, {{0, 1}, {1, 2}}, {16, 16, 16}},  // rows of three products, columns of more than a block
      {16, 40, {{0, 1}, {1, 2}}, {8, 8, 8}},      // a warp whose last columns aren't there
      {23, 32, {{0, 1}, {1, 2}}, {8, 16, 8}},     // a rank of each its own
      {1, 8, {{0, 1}}, {16, 16}},                 // up has none
      {5, 64, {{1, 2}}, {8, 16}},                 // gate has none
      {19, 72, {{0, 2}}, {16, 8}},                // one module holds both
      {19, 72, {}, {16}},                         // dy's alone
      {19, 72, {{0, 1}, {1, 2}}, {8, 8}},         // dy has none
      {32784, 8, {{0, 1}, {1, 2}}, {16, 16, 16}}  // more rows than a launch has blocks for
  };
  for (const Form& form : forms) {
    // What is computed is rounded once; see kTolerances.
    for (const auto& [dtype, tolerance] : {std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 6e-4}}) {
      for (const auto kind : {Activation::kSilu, Activation::kGelu, Activation::kClampedSwiglu}) {
        CAPTURE(form.tokens, form.width, form.ranks, form.columns.size(), c10::toString(dtype));
        const Setup s(form, dtype);
        const auto [value, gradient] = expected_of(s, kind);
        card::reset_report();
        at::Tensor gate_up = s.gate_up.to(kCard), again;
        const at::Tensor y = gated_activation(gate_up, kind, s.terms);
        CHECK(at::equal(gate_up.cpu(), s.gate_up));
        gated_activation_backward_(s.dy.to(kCard), gate_up, kind, &again, s.terms, s.dy_terms);
        CHECK(card::report().kernels[kFile] == (s.terms.empty() ? 1 : 2));
        CHECK(card::report().hazards.empty());
        CHECK(relative_distance(y.cpu(), value) < tolerance);
        CHECK(at::equal(again.cpu(), y.cpu()));
        CHECK(relative_distance(gate_up.cpu(), gradient) < tolerance);
        CHECK(relative_distance(y.cpu(), value.roll(1, 1)) > 0.5);
        // The terms are most of what there is.
        const at::Tensor bare = s.gate_up.to(at::kDouble);
        if (!s.terms.empty()) CHECK(relative_distance(reference::gated_activation(bare, kind), value) > 0.5);
      }
    }
  }
}

TEST_CASE("a gated activation's gradient with its terms doesn't need the product") {
  const Setup s({9, 24, {{0, 1}, {1, 2}}, {16, 16, 16}}, at::kBFloat16);
  at::Tensor with = s.gate_up.to(kCard), without = with.clone(), again;
  gated_activation_backward_(s.dy.to(kCard), with, Activation::kSilu, &again, s.terms, s.dy_terms);
  gated_activation_backward_(s.dy.to(kCard), without, Activation::kSilu, nullptr, s.terms, s.dy_terms);
  CHECK(at::equal(with.cpu(), without.cpu()));
}

TEST_CASE("a gated activation's gradient brings that of the next projection's A with it on a card") {
  const Form forms[] = {
      {37, 264, {{0, 1}, {1, 2}}, {16, 16, 16}},  // columns of more than a block
      {300, 72, {{0, 1}, {1, 2}}, {8, 8, 8}},  // three ranges of rows, a warp whose last columns aren't there
      {9, 40, {{0, 2}}, {16, 8}},
      {130, 64, {}, {16}},  // dy's term alone
      {1, 8, {{0, 1}}, {8, 16}},
  };
  for (const Form& form : forms) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const auto kind :
           {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kClampedSwiglu}) {
        CAPTURE(form.tokens, form.width, form.ranks, form.columns.size(), c10::toString(dtype));
        const Setup s(form, dtype);
        const LowRankTerm& term = s.dy_terms[0];
        const at::Tensor before = random({form.ranks.back(), form.width}, 4).to(at::kFloat);
        at::Tensor written = s.gate_up.to(kCard), gate_up = written.clone(), again;
        gated_activation_backward_(s.dy.to(kCard), written, kind, &again, s.terms, s.dy_terms);
        const at::Tensor sum = before.to(kCard);
        REQUIRE(gated_activation_backward_sums(s.dy.to(kCard), s.dy_terms, sum));
        card::reset_report();
        gated_activation_backward_(s.dy.to(kCard), gate_up, kind, nullptr, s.terms, s.dy_terms, sum);
        CHECK(card::report().kernels[kFile] == 2);
        CHECK(card::report().hazards.empty());
        CHECK(at::equal(gate_up.cpu(), written.cpu()));
        // Of the product that would be written, rounded: what is left are sums in fp32.
        const at::Tensor left = term.left.cpu().to(at::kDouble), product = again.cpu().to(at::kDouble);
        const at::Tensor added = sum.cpu().to(at::kDouble) - before.to(at::kDouble);
        CHECK(relative_distance(added, term.scale * at::mm(left.t(), product)) < 1e-6);
        if (form.tokens > 1)
          CHECK(relative_distance(added, term.scale * at::mm(left.t().roll(1, 1), product)) > 0.5);
      }
    }
  }
}

TEST_CASE("a gradient of A that the gated activation's kernels don't sum is left to its product") {
  const Setup s({4, 32, {{0, 1}, {1, 2}}, {16, 16, 16}}, at::kBFloat16);
  const at::Tensor dy = s.dy.to(kCard), sum = at::zeros({16, 32}, at::TensorOptions(kCard));
  const auto sums = [&](const at::Tensor& gradient) {
    return gated_activation_backward_sums(dy, s.dy_terms, gradient);
  };
  CHECK(sums(sum));
  CHECK_FALSE(sums({}));
  CHECK_FALSE(sums(sum.to(at::kBFloat16)));
  CHECK_FALSE(sums(sum.slice(0, 0, 8)));  // the rest is frozen
  CHECK_FALSE(sums(at::zeros({16, 64}, sum.options()).slice(1, 0, 32)));
  CHECK_FALSE(sums(at::zeros({16 * 32 + 1}, sum.options()).slice(0, 1).view({16, 32})));
  CHECK_FALSE(gated_activation_backward_sums(dy, {}, sum));
  CHECK_FALSE(gated_activation_backward_sums(s.dy, s.dy_terms, sum));

  at::Tensor gate_up = s.gate_up.to(kCard), again;
  const auto backward = [&](at::Tensor* product, const at::Tensor& gradient) {
    return error_text([&] {
      gated_activation_backward_(dy, gate_up, Activation::kSilu, product, s.terms, s.dy_terms, gradient);
    });
  };
  const auto refused = Contains("expected a gradient of the right operand of dy's term");
  CHECK_THAT(backward(nullptr, sum.slice(0, 0, 8)), refused);
  CHECK_THAT(backward(&again, sum), refused);
  CHECK(at::equal(gate_up.cpu(), s.gate_up));
}

TEST_CASE("low-rank terms that the gated activation's kernels don't take are not left to it") {
  const std::vector<std::pair<int, int>> both{{0, 1}, {1, 2}};
  const Form usual{4, 32, both, {16, 16, 16}};
  const auto adds = [](const Setup& s, const at::Tensor& gate_up) {
    return gated_activation_adds(gate_up, s.terms);
  };
  const auto takes = [&](const Setup& s) {
    const bool forward = adds(s, s.gate_up.to(kCard));
    CHECK(gated_activation_backward_adds(s.dy.to(kCard), s.dy_terms) == forward);
    return forward;
  };
  CHECK(takes(Setup(usual, at::kBFloat16)));
  CHECK_FALSE(takes(Setup(usual, at::kFloat)));
  CHECK_FALSE(takes(Setup({4, 32, both, {4, 4, 4}}, at::kBFloat16)));
  CHECK_FALSE(takes(Setup({4, 32, both, {32, 32, 32}}, at::kBFloat16)));
  CHECK_FALSE(takes(Setup({4, 36, both, {16, 16, 16}}, at::kBFloat16)));
  {
    const ReferenceOps references;
    CHECK_FALSE(takes(Setup(usual, at::kBFloat16)));
  }

  Setup s(usual, at::kBFloat16);
  const at::Tensor gate_up = s.gate_up.to(kCard);
  CHECK_FALSE(gated_activation_adds(gate_up, {}));
  CHECK_FALSE(gated_activation_adds(s.gate_up, s.terms));  // on the CPU products add them
  CHECK_FALSE(gated_activation_adds(gate_up, {s.terms[0], s.terms[0]}));
  CHECK_FALSE(gated_activation_backward_adds(s.dy.to(kCard), {s.dy_terms[0], s.dy_terms[0]}));
  Setup moved = s;
  moved.terms[1].begin = 16;
  CHECK_FALSE(adds(moved, gate_up));
  const auto elsewhere = [&](at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset) {
    return at::zeros({4096}, gate_up.options()).as_strided(sizes, strides, offset);
  };
  const auto with_left = [&](const at::Tensor& left) {
    Setup other = s;
    other.terms[0].left = left;
    return adds(other, gate_up);
  };
  const auto with_right = [&](const at::Tensor& right) {
    Setup other = s;
    other.terms[0].right = right;
    return adds(other, gate_up);
  };
  CHECK(with_left(elsewhere({4, 16}, {20, 1}, 4)));
  CHECK_FALSE(with_left(elsewhere({4, 16}, {20, 1}, 2)));
  CHECK_FALSE(with_left(elsewhere({4, 16}, {18, 1}, 4)));
  CHECK_FALSE(with_left(elsewhere({4, 16}, {32, 2}, 0)));
  CHECK(with_right(elsewhere({32, 16}, {16, 1}, 8)));
  CHECK_FALSE(with_right(elsewhere({32, 16}, {16, 1}, 4)));
  CHECK_FALSE(with_right(elsewhere({32, 16}, {24, 1}, 0)));
  CHECK_FALSE(adds(s, elsewhere({4, 64}, {64, 1}, 4)));
  CHECK_FALSE(adds(s, elsewhere({4, 64}, {72, 1}, 0)));

  CHECK_THAT(error_text([&] { gated_activation(gate_up, Activation::kSilu, moved.terms); }),
             Contains("expected low-rank terms that its kernels add"));
  at::Tensor over = gate_up;
  CHECK_THROWS_AS(gated_activation_backward_(s.dy.to(kCard), over, Activation::kSilu, nullptr, moved.terms),
                  Error);
  CHECK_THROWS_AS(gated_activation(s.gate_up, Activation::kSilu, s.terms), Error);
  // dy's term alone says nothing of what the gradient is written to.
  for (at::Tensor other : {elsewhere({4, 64}, {64, 1}, 4), elsewhere({4, 64}, {72, 1}, 0)})
    CHECK_THROWS_AS(
        gated_activation_backward_(s.dy.to(kCard), other, Activation::kSilu, nullptr, {}, s.dy_terms), Error);
}

TEST_CASE("a plan for a card without tensor cores leaves no low-rank terms to the gated activation") {
  for (const auto& [capability, taken] : {std::pair{75, false}, std::pair{80, true}}) {
    const DryRun run({.device = at::kCUDA, .capability = capability});
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor gate_up = at::empty({4, 64}, options);
    const std::vector<LowRankTerm> terms{
        {at::empty({4, 16}, options), at::empty({64, 16}, options), 0, /*scale=*/2}};
    CHECK(gated_activation_adds(gate_up, terms) == taken);
    if (taken) CHECK(gated_activation(gate_up, Activation::kSilu, terms).sizes() == at::IntArrayRef({4, 32}));
  }
}
