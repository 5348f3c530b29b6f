// The norm of a residual whose delta was left its low-rank term, on the fake card, against fp64.
#include <vector>

#include "card/kernel_checks.h"
#include "ops/dry_run.h"
#include "ops/norm/norm.h"
#include "support/error_text.h"
#include "support/reference_ops.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

constexpr const char* kFile = "norm_terms_cuda.cu";
constexpr double kScale = 0.75;

struct Form {
  std::int64_t tokens, width, rank;
};

// The term's left operand is columns of a wider matrix, as those of a group's modules are.
struct Setup {
  Setup(const Form& form, at::ScalarType dtype, bool bias) {
    const auto made = [&](at::IntArrayRef sizes, std::uint64_t seed) {
      return random(sizes, seed).to(dtype);
    };
    residual = made({form.tokens, form.width}, 1);
    delta = made({form.tokens, form.width}, 2);
    const at::Tensor left = made({form.tokens, 2 * form.rank}, 3).narrow(1, form.rank, form.rank);
    const at::Tensor right = made({form.width, form.rank}, 4);
    parameters = {made({form.width}, 5), bias ? made({form.width}, 6) : at::Tensor()};
    term = kScale * at::mm(left.to(at::kDouble), right.to(at::kDouble).t());
    terms = {{left.to(kCard), right.to(kCard), 0, kScale}};
  }

  NormParameters on(at::Device device, at::ScalarType dtype) const {
    const auto moved = [&](const at::Tensor& x) { return x.defined() ? x.to(device, dtype) : x; };
    return {moved(parameters.weight), moved(parameters.bias)};
  }

  at::Tensor residual, delta, term;  // the term in fp64
  NormParameters parameters;
  std::vector<LowRankTerm> terms;
};

}  // namespace

TEST_CASE("a low-rank term that a norm's delta was left is added on the way on a card") {
  const Form forms[] = {
      {37, 72, 16},  // rows of five blocks, the last with five; columns of two warps, the last with one lane
      {32, 8, 8},    // one lane's columns
      {40, 1032, 16},  // more than one part of a warp
      {33, 2056, 8},   // beyond the reach of blocks for narrow rows
      {32, 4096, 16},  // all of a block's reach
      {32, 8192, 16}   // the widest
  };
  const NormOptions options[] = {{.eps = 1e-5}, {.kind = NormKind::kLayer, .eps = 1e-3, .unit_offset = true}};
  for (const Form& form : forms) {
    // What is computed is rounded once, the sum and, from it, the result; see kTolerances.
    for (const auto& [dtype, tolerance] : {std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 6e-4}}) {
      for (const NormOptions& option : options) {
        const bool is_layer = option.kind == NormKind::kLayer;
        CAPTURE(form.tokens, form.width, form.rank, c10::toString(dtype), is_layer);
        const Setup s(form, dtype, /*bias=*/is_layer);
        // Parameters of the rows' type and in fp32.
        const NormParameters p = s.on(kCard, is_layer ? at::kFloat : dtype);
        card::reset_report();
        at::Tensor sum;
        NormStatistics statistics;
        const at::Tensor y =
            add_norm(s.residual.to(kCard), s.delta.to(kCard), p, option, sum, &statistics, s.terms);
        CHECK(card::report().kernels[kFile] == 1);
        CHECK(card::report().hazards.empty());

        const at::Tensor exact = s.residual.to(at::kDouble) + s.delta.to(at::kDouble) + s.term;
        CHECK(relative_distance(sum.cpu(), exact) < tolerance);
        // What goes on is the norm of the rounded sum.
        const at::Tensor rounded = sum.cpu().to(at::kDouble);
        CHECK(relative_distance(y.cpu(), reference::norm(rounded, s.on(at::kCPU, at::kDouble), option)) <
              tolerance);
        // A layer that is computed again norms the sum without a term, and has the same bits.
        NormStatistics same;
        CHECK(at::equal(norm(sum, p, option, &same).cpu(), y.cpu()));
        CHECK(at::equal(statistics.rstd.cpu(), same.rstd.cpu()));
        if (is_layer) CHECK(at::equal(statistics.mean.cpu(), same.mean.cpu()));
        // The term is most of what there is, and each row has its own.
        CHECK(relative_distance(s.residual.to(at::kDouble) + s.delta.to(at::kDouble), exact) > 0.3);
        CHECK(relative_distance(exact.roll(1, 0), exact) > 0.5);
      }
    }
  }
}

TEST_CASE("parameters of a norm with a low-rank term may begin anywhere") {
  const Setup s({32, 64, 16}, at::kBFloat16, /*bias=*/true);
  const auto shifted = [](const at::Tensor& values) {
    at::Tensor all = at::empty({values.numel() + 1}, values.options());
    all.slice(0, 1).copy_(values);
    return all.slice(0, 1);
  };
  const NormParameters p = s.on(kCard, at::kBFloat16);
  at::Tensor sum;
  const auto normed = [&](const NormParameters& parameters) {
    return add_norm(s.residual.to(kCard), s.delta.to(kCard), parameters, {}, sum, nullptr, s.terms).cpu();
  };
  card::reset_report();
  CHECK(at::equal(normed({shifted(p.weight), shifted(p.bias)}), normed(p)));
  CHECK(card::report().hazards.empty());
}

TEST_CASE("low-rank terms that the norm's kernel doesn't take are not left to it") {
  const auto adds = [](const Form& form, at::ScalarType dtype) {
    const Setup s(form, dtype, /*bias=*/false);
    return add_norm_adds(s.delta.to(kCard), s.terms);
  };
  CHECK(adds({32, 64, 16}, at::kBFloat16));
  CHECK_FALSE(adds({32, 64, 16}, at::kFloat));
  CHECK_FALSE(adds({32, 64, 4}, at::kBFloat16));
  CHECK_FALSE(adds({32, 64, 32}, at::kBFloat16));
  CHECK_FALSE(adds({32, 60, 16}, at::kBFloat16));
  CHECK_FALSE(adds({31, 64, 16}, at::kBFloat16));
  CHECK_FALSE(adds({32, 8200, 16}, at::kBFloat16));
  {
    const ReferenceOps references;
    CHECK_FALSE(adds({32, 64, 16}, at::kBFloat16));
  }

  const Setup s({32, 64, 16}, at::kBFloat16, /*bias=*/false);
  const at::Tensor delta = s.delta.to(kCard);
  CHECK_FALSE(add_norm_adds(delta, {}));
  CHECK_FALSE(add_norm_adds(s.delta, s.terms));  // on the CPU products add them
  CHECK_FALSE(add_norm_adds(delta, {s.terms[0], s.terms[0]}));
  auto part = s.terms;
  part[0].right = part[0].right.slice(0, 0, 32);
  CHECK_FALSE(add_norm_adds(delta, part));
  at::Tensor sum;
  CHECK_THAT(error_text([&] {
               add_norm(s.residual.to(kCard), delta, s.on(kCard, at::kFloat), {}, sum, nullptr, part);
             }),
             Contains("expected low-rank terms that its kernel adds"));
  CHECK_THROWS_AS(add_norm(s.residual, s.delta, s.parameters, {}, sum, nullptr, s.terms), Error);
}

TEST_CASE("a plan for a card without tensor cores leaves no low-rank term to a norm") {
  for (const auto& [capability, taken] : {std::pair{75, false}, std::pair{80, true}}) {
    const DryRun run({.device = at::kCUDA, .capability = capability});
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor delta = at::empty({32, 64}, options);
    const std::vector<LowRankTerm> terms{
        {at::empty({32, 16}, options), at::empty({64, 16}, options), 0, /*scale=*/2}};
    CHECK(add_norm_adds(delta, terms) == taken);
  }
}
