// Rotary of a projection that was left its low-rank terms, on the fake card, against fp64.
#include <cstdint>
#include <utility>
#include <vector>

#include "card/kernel_checks.h"
#include "ops/dry_run.h"
#include "ops/rotary/rotary.h"
#include "support/error_text.h"
#include "support/reference_ops.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr const char* kFile = "rotary_terms_cuda.cu";

struct Form {
  std::int64_t tokens;
  HeadLayout layout;
  std::vector<std::pair<int, int>> parts;  // of terms: 0 is queries, 1 keys, 2 values; {0, 3} covers all
  std::vector<std::int64_t> ranks;
};

// Terms as a group of projections leaves them: their left operands are columns of one matrix.
struct Setup {
  Setup(const Form& form, at::ScalarType dtype) : layout(form.layout) {
    qkv = random({form.tokens, layout.width()}, 1).to(dtype);
    complete = qkv.to(at::kDouble);
    const at::Tensor angles = random({form.tokens, layout.head_dim / 2}, 2).to(at::kFloat);
    cos = angles.cos();
    sin = angles.sin();
    const std::int64_t ends[] = {0, layout.k_begin(), layout.v_begin(), layout.width()};
    std::int64_t all = 0, at = 0;
    for (const std::int64_t rank : form.ranks) all += rank;
    const at::Tensor left = random({form.tokens, all}, 3).to(dtype), card_left = left.to(kCard);
    for (std::size_t i = 0; i < form.ranks.size(); ++i) {
      const std::int64_t rank = form.ranks[i], begin = ends[form.parts[i].first],
                         end = ends[form.parts[i].second];
      const double scale = 0.75 + static_cast<double>(i);  // each has its own
      const at::Tensor right = random({end - begin, rank}, 5 + i).to(dtype);
      terms.push_back({card_left.narrow(1, at, rank), right.to(kCard), begin, scale});
      complete.slice(1, begin, end) +=
          scale * at::mm(left.narrow(1, at, rank).to(at::kDouble), right.to(at::kDouble).t());
      at += rank;
    }
  }

  HeadLayout layout;
  at::Tensor qkv, cos, sin, complete;  // the last in fp64, with its terms
  std::vector<LowRankTerm> terms;
};

const std::vector<std::pair<int, int>> kEach{{0, 1}, {1, 2}, {2, 3}};

}  // namespace

TEST_CASE("low-rank terms that rotary was left are added on the way on a card") {
  const Form forms[] = {
      {37, {2, 1, 64}, kEach, {16, 16, 16}},          // rows of three products
      {16, {3, 3, 128}, kEach, {8, 8, 8}},            // heads of two warps
      {1, {4, 2, 64}, kEach, {8, 16, 8}},             // a rank of each its own
      {23, {2, 1, 64}, {{0, 1}, {2, 3}}, {16, 8}},    // keys have none, and are rotated
      {23, {2, 1, 64}, {{1, 2}}, {16}},               // values have none, and stay
      {19, {4, 2, 64}, {{0, 2}}, {16}},               // one for queries and keys
      {19, {4, 2, 64}, {{0, 3}}, {16}},               // one module holds all
      {32784, {1, 1, 64}, {{0, 1}, {2, 3}}, {8, 8}},  // more rows than a launch has blocks for
      {9, {2, 1, 192}, {{0, 1}, {1, 3}}, {16, 8}},    // halves of 96
  };
  for (const Form& form : forms) {
    // What is computed is rounded once; see kTolerances.
    for (const auto& [dtype, tolerance] : {std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 6e-4}}) {
      CAPTURE(form.tokens, form.layout.heads, form.layout.head_dim, form.ranks, c10::toString(dtype));
      const Setup s(form, dtype);
      card::reset_report();
      at::Tensor y = s.qkv.to(kCard);
      rotate(y, s.cos.to(kCard), s.sin.to(kCard), s.layout, s.terms);
      CHECK(card::report().kernels[kFile] == 1);
      CHECK(card::report().hazards.empty());
      const auto expected =
          reference::rotary(s.complete, s.cos.to(at::kDouble), s.sin.to(at::kDouble), s.layout);
      CHECK(relative_distance(y.cpu(), expected) < tolerance);
      // The terms are much of what there is, and each row has its own.
      CHECK(relative_distance(s.qkv.to(at::kDouble), s.complete) > 0.5);
      if (form.tokens > 1) CHECK(relative_distance(expected.roll(1, 0), expected) > 0.5);
    }
  }
}

TEST_CASE("angles of rotary with low-rank terms may begin anywhere") {
  const Setup s({5, {2, 1, 64}, kEach, {8, 8, 8}}, at::kBFloat16);
  const auto shifted = [](const at::Tensor& values) {
    at::Tensor all = at::empty({values.numel() + 1}, values.options().device(kCard));
    all.slice(0, 1).copy_(values.flatten());
    return all.slice(0, 1).view(values.sizes());
  };
  at::Tensor y = s.qkv.to(kCard), other = y.clone();
  card::reset_report();
  rotate(y, s.cos.to(kCard), s.sin.to(kCard), s.layout, s.terms);
  rotate(other, shifted(s.cos), shifted(s.sin), s.layout, s.terms);
  CHECK(card::report().hazards.empty());
  CHECK(at::equal(y.cpu(), other.cpu()));
}

TEST_CASE("low-rank terms that rotary's kernel doesn't take are not left to it") {
  const auto adds = [](const Form& form, at::ScalarType dtype) {
    const Setup s(form, dtype);
    return rotate_adds(s.qkv.to(kCard), s.cos.to(kCard), s.layout, s.terms);
  };
  const Form usual{4, {2, 1, 64}, kEach, {16, 16, 16}};
  CHECK(adds(usual, at::kBFloat16));
  CHECK_FALSE(adds(usual, at::kFloat));
  CHECK_FALSE(adds({4, {2, 1, 64}, kEach, {16, 16, 4}}, at::kBFloat16));
  CHECK_FALSE(adds({4, {2, 1, 32}, kEach, {16, 16, 16}}, at::kBFloat16));
  CHECK_FALSE(adds({4, {2, 1, 64, true}, kEach, {16, 16, 16}}, at::kBFloat16));
  CHECK_FALSE(adds({4, {2, 1, 80}, kEach, {16, 16, 16}}, at::kBFloat16));
  {
    const ReferenceOps references;
    CHECK_FALSE(adds(usual, at::kBFloat16));
  }

  const Setup s(usual, at::kBFloat16);
  const at::Tensor qkv = s.qkv.to(kCard), cos = s.cos.to(kCard), sin = s.sin.to(kCard);
  CHECK_FALSE(rotate_adds(qkv, cos, s.layout, {}));
  CHECK_FALSE(rotate_adds(s.qkv, s.cos, s.layout, s.terms));  // on the CPU products add them
  CHECK_FALSE(rotate_adds(qkv, cos, s.layout, {s.terms[0], s.terms[0]}));
  CHECK_FALSE(rotate_adds(qkv, cos.slice(1, 0, 16), s.layout, s.terms));  // a part of each head is rotated
  auto moved = s.terms;
  moved[0].begin = 32;
  CHECK_FALSE(rotate_adds(qkv, cos, s.layout, moved));
  at::Tensor over = qkv;
  CHECK_THAT(error_text([&] { rotate(over, cos, sin, s.layout, moved); }),
             Contains("expected low-rank terms that its kernel adds"));
  at::Tensor on_host = s.qkv;
  CHECK_THROWS_AS(rotate(on_host, s.cos, s.sin, s.layout, s.terms), Error);
}

TEST_CASE("a plan for a card without tensor cores leaves no low-rank terms to rotary") {
  for (const auto& [capability, taken] : {std::pair{75, false}, std::pair{80, true}}) {
    const DryRun run({.device = at::kCUDA, .capability = capability});
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const HeadLayout layout{2, 1, 64};
    at::Tensor qkv = at::empty({4, layout.width()}, options);
    const at::Tensor angles = at::empty({4, 32}, options.dtype(at::kFloat));
    const std::vector<LowRankTerm> terms{
        {at::empty({4, 16}, options), at::empty({layout.width(), 16}, options), 0, /*scale=*/2}};
    CHECK(rotate_adds(qkv, angles, layout, terms) == taken);
    if (taken) CHECK_NOTHROW(rotate(qkv, angles, angles, layout, terms));
  }
}
