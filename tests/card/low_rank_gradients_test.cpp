// The gradients of low-rank updates by tensor cores on the fake card, against fp64 products.
#include "ops/lora/lora_linear.h"

#include <utility>
#include <vector>

#include "card/kernel_checks.h"
#include "ops/weight_format.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kFile = "low_rank_gradients_cuda.cu";

struct Form {
  std::int64_t tokens;
  std::vector<std::pair<std::int64_t, std::int64_t>> columns;  // of projections
  std::int64_t out;
  std::int64_t rank;
};

// Projections whose b, and whose gradients of it, follow each other in memory, as an adapter store has them.
struct Group {
  Group(const Form& form, at::ScalarType dtype) {
    const at::TensorOptions options(kCard);
    const std::int64_t count = std::ssize(form.columns);
    std::int64_t rows = 0;
    for (const auto& [begin, end] : form.columns) rows += end - begin;
    dy = random({form.tokens, form.out}, 1).to(dtype);
    u = random({form.tokens, count * form.rank}, 2).to(dtype);
    b = random({rows, form.rank}, 3).to(dtype);
    start = random({rows, form.rank}, 4).to(at::kFloat);
    card_b = b.to(kCard);
    grad_b = start.to(kCard);
    a = random({count * form.rank, kIn}, 5).to(dtype);
    const at::Tensor card_a = a.to(kCard);
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& [begin, end] = form.columns[static_cast<std::size_t>(i)];
      projections.push_back({.out_begin = begin,
                             .out_end = end,
                             .a = card_a.slice(0, i * form.rank, (i + 1) * form.rank),
                             .b = card_b.slice(0, row, row + end - begin),
                             .grad_a = {},
                             .grad_b = grad_b.slice(0, row, row + end - begin),
                             .scale = kScale});
      row += end - begin;
    }
  }

  // The gradient of the input, with a weight of zeros, so that it is that of the updates alone.
  at::Tensor backward() {
    const at::Tensor weight = at::zeros({dy.size(1), kIn}, dy.options()).to(kCard);
    card::reset_report();
    const auto gradients = lora_linear_backward(dy.to(kCard), u.to(kCard), frozen_matrix(weight), projections,
                                                std::nullopt, /*input_gradient=*/true);
    CHECK_FALSE(gradients.want_input());  // a is frozen
    CHECK(card::report().hazards.empty());
    return gradients.dx.cpu();
  }

  void check(const at::Tensor& dx, double tolerance) const {
    const at::Tensor wide = dy.to(at::kDouble);
    at::Tensor expected_dx = at::zeros({dy.size(0), kIn}, at::kDouble), expected = start.to(at::kDouble);
    std::int64_t row = 0, rank = 0;
    for (const auto& p : projections) {
      const at::Tensor columns = wide.slice(1, p.out_begin, p.out_end);
      const std::int64_t rows = p.out_end - p.out_begin, r = p.b.size(1);
      const at::Tensor du = at::mm(columns, b.slice(0, row, row + rows).to(at::kDouble));
      expected_dx += kScale * at::mm(du, a.slice(0, rank, rank + r).to(at::kDouble));
      expected.slice(0, row, row + rows) +=
          kScale * at::mm(columns.t(), u.slice(1, rank, rank + r).to(at::kDouble));
      row += rows;
      rank += r;
    }
    // grad_b has no rounding but fp32's.
    CHECK(relative_distance(grad_b.cpu(), expected) < 2e-6);
    CHECK(relative_distance(dx, expected_dx) < tolerance);
    CHECK(relative_distance(dx.roll(1, 0), expected_dx) > 0.5);
    CHECK(relative_distance(grad_b.cpu().roll(1, 0), expected) > 0.5);
  }

  static constexpr std::int64_t kIn = 24;
  static constexpr double kScale = 0.75;
  at::Tensor dy, u, a, b, start, card_b, grad_b;
  std::vector<LoraProjection> projections;
};

}  // namespace

TEST_CASE("gradients of low-rank updates are one pass over that of the output on a card") {
  const Form forms[] = {
      {1030, {{0, 72}}, 72, 16},                           // a range of rows and a part of one, two tiles
      {1024, {{0, 128}, {128, 192}, {192, 256}}, 256, 8},  // ranks that fill half of a matrix
      {1100, {{8, 136}, {200, 208}}, 232, 16},             // gaps, and columns that don't fill a tile
  };
  for (const Form& form : forms) {
    for (const auto& [dtype, tolerance] : {std::pair{at::kBFloat16, 8e-3}, std::pair{at::kHalf, 1e-3}}) {
      CAPTURE(form.tokens, form.out, form.rank, c10::toString(dtype));
      Group group(form, dtype);
      const at::Tensor dx = group.backward();
      CHECK(card::report().kernels[kFile] == 2);
      group.check(dx, tolerance);
      Group again(form, dtype);
      CHECK(at::equal(again.backward(), dx));
      CHECK(at::equal(again.grad_b.cpu(), group.grad_b.cpu()));
    }
  }
}

TEST_CASE("gradients of low-rank updates that the kernels don't take are products of their own") {
  const Form usual{1024, {{0, 64}, {64, 128}}, 128, 16};
  const auto check_fallback = [](Group group, double tolerance) {
    const at::Tensor dx = group.backward();
    CHECK(card::report().kernels[kFile] == 0);
    group.check(dx, tolerance);
  };
  for (const Form& form :
       {Form{1023, {{0, 64}}, 64, 16}, Form{1024, {{0, 64}}, 64, 12}, Form{1024, {{0, 64}}, 64, 24},
        Form{1024, {{4, 68}}, 72, 16}, Form{1024, {{0, 60}}, 64, 16}}) {
    CAPTURE(form.tokens, form.rank, form.columns.front().second);
    check_fallback(Group(form, at::kBFloat16), 8e-3);
  }
  check_fallback(Group(usual, at::kFloat), 2e-6);
  Group apart(usual, at::kBFloat16);
  apart.projections[1].b = apart.projections[1].b.clone();
  check_fallback(std::move(apart), 8e-3);
}
