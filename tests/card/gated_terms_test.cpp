// The gated activation of products whose low-rank terms were left to it, on the fake card, against fp64.
#include <optional>
#include <tuple>
#include <vector>

#include "card/kernel_checks.h"
#include "ops/activation/activation.h"
#include "ops/dry_run.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr const char* kFile = "gated_terms_cuda.cu";
constexpr double kScale = 0.75;

struct Form {
  std::int64_t tokens, width, rank;
  std::vector<std::pair<int, int>> columns;  // of terms, in widths: {0, 1} is gate, {1, 2} up, {0, 2} both
  bool of_gradient = true;                   // and of dy
};

// Terms as a group of projections leaves them: their left operands are columns of one matrix.
struct Setup {
  Setup(const Form& form, at::ScalarType dtype) {
    const std::int64_t count = std::ssize(form.columns);
    gate_up = random({form.tokens, 2 * form.width}, 1).to(dtype);
    dy = random({form.tokens, form.width}, 2).to(dtype);
    const at::Tensor left = random({form.tokens, (count + 1) * form.rank}, 3).to(dtype);
    const at::Tensor right = random({form.rank, form.width}, 4).to(dtype);
    complete = gate_up.to(at::kDouble);
    complete_dy = dy.to(at::kDouble);
    const auto left_of = [&](const at::Tensor& all, std::int64_t i) {
      return all.narrow(1, i * form.rank, form.rank);
    };
    const at::Tensor card_left = left.to(kCard);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& [begin, end] = form.columns[static_cast<std::size_t>(i)];
      const at::Tensor b =
          random({(end - begin) * form.width, form.rank}, 5 + static_cast<std::uint64_t>(i)).to(dtype);
      terms.push_back({left_of(card_left, i), b.to(kCard), begin * form.width, kScale});
      complete.slice(1, begin * form.width, end * form.width) +=
          kScale * at::mm(left_of(left, i).to(at::kDouble), b.to(at::kDouble).t());
    }
    if (form.of_gradient) {
      dy_terms.push_back({left_of(card_left, count), right.to(kCard), 0, kScale});
      complete_dy += kScale * at::mm(left_of(left, count).to(at::kDouble), right.to(at::kDouble));
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
      {37, 264, 16, {{0, 1}, {1, 2}}},  // rows of three products, columns of more than a block
      {16, 40, 8, {{0, 1}, {1, 2}}},    // a warp whose last columns aren't there
      {1, 8, 16, {{0, 1}}},             // up has none
      {5, 64, 8, {{1, 2}}},             // gate has none
      {19, 72, 16, {{0, 2}}},           // one module holds both
      {19, 72, 16, {}},                 // the gradient's alone
      {19, 72, 8, {{0, 1}, {1, 2}}, false},
  };
  for (const Form& form : forms) {
    for (const auto& [dtype, tolerance] : {std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 6e-4}}) {
      for (const auto kind : {Activation::kSilu, Activation::kGelu}) {
        CAPTURE(form.tokens, form.width, form.rank, form.columns.size(), c10::toString(dtype));
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
        // The terms are most of what there is.
        CHECK(relative_distance(y.cpu(), value.roll(1, 1)) > 0.5);
        const at::Tensor bare = s.gate_up.to(at::kDouble);
        if (!s.terms.empty()) CHECK(relative_distance(reference::gated_activation(bare, kind), value) > 0.5);
      }
    }
  }
}

TEST_CASE("a gated activation's gradient with its terms doesn't need the product") {
  const Setup s({9, 24, 16, {{0, 1}, {1, 2}}}, at::kBFloat16);
  at::Tensor with = s.gate_up.to(kCard), without = with.clone(), again;
  gated_activation_backward_(s.dy.to(kCard), with, Activation::kSilu, &again, s.terms, s.dy_terms);
  gated_activation_backward_(s.dy.to(kCard), without, Activation::kSilu, nullptr, s.terms, s.dy_terms);
  CHECK(at::equal(with.cpu(), without.cpu()));
}

TEST_CASE("low-rank terms that the gated activation's kernels don't take are not left to it") {
  const Form usual{4, 32, 16, {{0, 1}, {1, 2}}};
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
  CHECK_FALSE(takes(Setup({4, 32, 4, {{0, 1}, {1, 2}}}, at::kBFloat16)));
  CHECK_FALSE(takes(Setup({4, 32, 32, {{0, 1}, {1, 2}}}, at::kBFloat16)));
  CHECK_FALSE(takes(Setup({4, 36, 16, {{0, 1}, {1, 2}}}, at::kBFloat16)));

  Setup s(usual, at::kBFloat16);
  const at::Tensor gate_up = s.gate_up.to(kCard);
  CHECK_FALSE(gated_activation_adds(gate_up, {}));
  CHECK_FALSE(gated_activation_adds(s.gate_up, s.terms));  // on the CPU products add them
  CHECK_FALSE(gated_activation_adds(gate_up, {s.terms[0], s.terms[0]}));
  CHECK_FALSE(gated_activation_backward_adds(s.dy.to(kCard), {s.dy_terms[0], s.dy_terms[0]}));
  Setup moved = s;
  moved.terms[1].begin = 16;
  CHECK_FALSE(adds(moved, gate_up));
  Setup unaligned = s;
  unaligned.terms[0].left =
      at::empty({4 * 18}, gate_up.options()).as_strided({4, 16}, {18, 1}, /*storage_offset=*/2);
  CHECK_FALSE(adds(unaligned, gate_up));

  CHECK_THAT(error_text([&] { gated_activation(gate_up, Activation::kSilu, moved.terms); }),
             Contains("expected low-rank terms that its kernels add"));
  at::Tensor over = gate_up;
  CHECK_THROWS_AS(gated_activation_backward_(s.dy.to(kCard), over, Activation::kSilu, nullptr, moved.terms),
                  Error);
  CHECK_THROWS_AS(gated_activation(s.gate_up, Activation::kSilu, s.terms), Error);
}

TEST_CASE("a plan for a card without tensor cores leaves no low-rank terms to the gated activation") {
  for (const auto& [capability, taken] : {std::pair{75, false}, std::pair{80, true}}) {
    const DryRun run({.device = at::kCUDA, .capability = capability});
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor gate_up = at::empty({4, 64}, options);
    const std::vector<LowRankTerm> terms{
        {at::empty({4, 16}, options), at::empty({64, 16}, options), 0, kScale}};
    CHECK(gated_activation_adds(gate_up, terms) == taken);
    if (taken) CHECK(gated_activation(gate_up, Activation::kSilu, terms).sizes() == at::IntArrayRef({4, 32}));
  }
}
