// The state space's kernels on the fake card, against the fp64 reference: values, gradients, states.
#include "ops/state_space/state_space.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "card/kernel_checks.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kFile = "state_space_cuda.cu";
constexpr std::int64_t kBefore = 3, kBeside = 5;  // columns of dt's matrix that aren't dt's

Sequences sequences_of(const std::vector<std::int32_t>& lengths) {
  Sequences sequences;
  sequences.cu_seqlens = {0};
  for (const std::int32_t length : lengths) {
    sequences.cu_seqlens.push_back(sequences.cu_seqlens.back() + length);
    sequences.max_seqlen = std::max<std::int64_t>(sequences.max_seqlen, length);
  }
  sequences.cu_seqlens_device = at::tensor(sequences.cu_seqlens, at::kInt).to(kCard);
  return sequences;
}

struct Gradients {
  at::Tensor xbc, dt;
};

// An input whose values `dtype` holds. Some heads forget nearly all within a chunk, others hardly anything.
struct Case {
  Case(const StateSpaceLayout& sizes, const std::vector<std::int32_t>& lengths, at::ScalarType dtype)
      : layout(sizes), sequences(sequences_of(lengths)) {
    const std::int64_t tokens = sequences.cu_seqlens.back();
    xbc = random({tokens, layout.width()}, 1).to(dtype);
    dt = random({tokens, layout.heads}, 2).to(dtype);
    dout = random({tokens, layout.b_begin()}, 3).to(dtype);
    numbers.a_log = at::linspace(-5, 2, layout.heads, at::kFloat);
    numbers.dt_bias = random({layout.heads}, 4).to(at::kFloat);
    numbers.d = random({layout.heads}, 5).to(at::kFloat);
  }

  StateSpaceNumbers card_numbers() const {
    return {numbers.a_log.to(kCard), numbers.dt_bias.to(kCard), numbers.d.to(kCard)};
  }
  // Of a row of a wider matrix, whose other columns are NaN: no kernel may read them.
  at::Tensor in_wider(const at::Tensor& of_heads) const {
    const at::Tensor wider =
        at::full({of_heads.size(0), kBefore + layout.heads + kBeside}, NAN, of_heads.options());
    wider.narrow(1, kBefore, layout.heads).copy_(of_heads);
    return wider.to(kCard).narrow(1, kBefore, layout.heads);
  }
  at::Tensor forward(std::vector<at::Tensor>* states = nullptr) const {
    return state_space(xbc.to(kCard), in_wider(dt), card_numbers(), layout, sequences, states).cpu();
  }
  Gradients backward() const {
    const at::Tensor wider =
        at::full({dt.size(0), kBefore + layout.heads + kBeside}, 7, dt.options().device(kCard));
    const at::Tensor dxbc = state_space_backward(dout.to(kCard), xbc.to(kCard), in_wider(dt), card_numbers(),
                                                 layout, sequences, wider.narrow(1, kBefore, layout.heads));
    const at::Tensor ddt = wider.cpu();
    CHECK((ddt.narrow(1, 0, kBefore) == 7).all().item<bool>());
    CHECK((ddt.narrow(1, kBefore + layout.heads, kBeside) == 7).all().item<bool>());
    return {dxbc.cpu(), ddt.narrow(1, kBefore, layout.heads)};
  }
  // In fp64: the output, and the gradients.
  at::Tensor exact(Gradients* gradients) const {
    const at::Tensor wide = xbc.to(at::kDouble).requires_grad_(true);
    const at::Tensor steps = dt.to(at::kDouble).requires_grad_(true);
    const at::Tensor out = reference::state_space(wide, steps, numbers, layout, sequences);
    const auto both = torch::autograd::grad({out}, {wide, steps}, {dout.to(at::kDouble)});
    *gradients = {both[0], both[1]};
    return out.detach();
  }

  StateSpaceLayout layout;
  Sequences sequences;
  at::Tensor xbc, dt, dout;
  StateSpaceNumbers numbers;
};

// The largest distance of x's, B's or C's part of a gradient from the fp64 one.
double parts_distance(const at::Tensor& value, const at::Tensor& expected, const StateSpaceLayout& layout) {
  double most = 0;
  const std::int64_t b = layout.b_begin(), c = layout.c_begin(), end = layout.width();
  for (const auto& [from, to] : {std::pair{std::int64_t{0}, b}, std::pair{b, c}, std::pair{c, end}})
    most = std::max(most, relative_distance(value.slice(1, from, to), expected.slice(1, from, to)));
  return most;
}

void check_case(const Case& in, const Tolerance& tolerance) {
  CAPTURE(in.layout.heads, in.layout.head_dim, in.layout.groups, in.layout.state_dim,
          c10::toString(in.xbc.scalar_type()), in.sequences.cu_seqlens);
  card::reset_report();
  const at::Tensor out = in.forward();
  CHECK(card::report().kernels[kFile] == 2);
  card::reset_report();
  const Gradients gradients = in.backward();
  CHECK(card::report().kernels[kFile] == 2);
  CHECK(card::report().kernels["state_space_reverse_cuda.cu"] == 1);
  CHECK(card::report().kernels["state_space_gradients_cuda.cu"] == 2);
  CHECK(card::report().hazards.empty());

  Gradients expected;
  const at::Tensor expected_out = in.exact(&expected);
  CHECK(out.scalar_type() == in.xbc.scalar_type());
  CHECK(gradients.xbc.scalar_type() == in.xbc.scalar_type());
  CHECK(relative_distance(out, expected_out) < tolerance.forward);
  CHECK(parts_distance(gradients.xbc, expected.xbc, in.layout) < tolerance.backward);
  CHECK(relative_distance(gradients.dt, expected.dt) < tolerance.backward);
  // A token further they are far from each other.
  CHECK(relative_distance(out.roll(1, 0), expected_out) > 0.2);
  CHECK(relative_distance(gradients.xbc.roll(1, 0), expected.xbc) > 0.2);
  CHECK(relative_distance(gradients.dt.roll(1, 0), expected.dt) > 0.2);
}

const Tolerance kSpaceTolerances[] = {
    {at::kFloat, 2e-6, 2e-6, "fp32 sums over tokens, of numbers that don't cancel"},
    {at::kBFloat16, 4e-3, 4e-3, "one rounding to 8 bits each way"},
    {at::kHalf, 6e-4, 6e-4, "one rounding to 11 bits each way"},
};

}  // namespace

TEST_CASE("a state space on a card: lengths about a chunk's, heads that share B and C, each dtype") {
  const std::vector<std::int32_t> lengths = {0, 1, 63, 64, 0, 65, 200};
  for (const Tolerance& tolerance : kSpaceTolerances) {
    INFO(tolerance.why);
    for (const StateSpaceLayout& layout :
         {StateSpaceLayout{1, 16, 1, 8}, StateSpaceLayout{4, 8, 2, 16}, StateSpaceLayout{6, 8, 1, 8}})
      check_case(Case(layout, lengths, tolerance.dtype), tolerance);
  }
}

TEST_CASE("a state space on a card: states of 128 and 256, and such that fill no tile or slice") {
  check_case(Case({5, 64, 1, 128}, {70, 130}, at::kFloat), kSpaceTolerances[0]);
  check_case(Case({2, 128, 2, 128}, {66}, at::kBFloat16), kSpaceTolerances[1]);
  check_case(Case({2, 104, 1, 72}, {129}, at::kFloat), kSpaceTolerances[0]);
  check_case(Case({10, 40, 2, 64}, {65}, at::kFloat), kSpaceTolerances[0]);
  check_case(Case({2, 40, 1, 256}, {3, 130}, at::kFloat), kSpaceTolerances[0]);
  check_case(Case({1, 64, 1, 136}, {66}, at::kHalf), kSpaceTolerances[2]);
  check_case(Case({1, 24, 1, 200}, {66}, at::kBFloat16), kSpaceTolerances[1]);
}

TEST_CASE(
    "a state space's gradients on a card are exact to fp32 where heads forget all from token to token") {
  Case in({3, 16, 1, 24}, {150, 70}, at::kFloat);
  in.numbers.a_log = at::full({3}, 2.0F);
  in.dt = in.dt * 2;  // steps near 0 beside large ones
  // G is several hundreds at a chunk's end: fp32 would leave 3e-5 of its differences.
  Gradients expected;
  const at::Tensor out = in.exact(&expected);
  const Gradients gradients = in.backward();
  CHECK(relative_distance(in.forward(), out) < 1e-6);
  CHECK(parts_distance(gradients.xbc, expected.xbc, in.layout) < 1e-6);
  for (std::int64_t head = 0; head < in.layout.heads; ++head)
    CHECK(relative_distance(gradients.dt.select(1, head), expected.dt.select(1, head)) < 1e-6);
}

TEST_CASE("a state space's result on a card doesn't depend on what a sequence is packed with") {
  const StateSpaceLayout layout{6, 40, 1, 16};
  const Case all(layout, {70, 0, 130, 5}, at::kBFloat16);
  const at::Tensor out = all.forward();
  const Gradients gradients = all.backward();
  CHECK(at::equal(all.forward(), out));
  const Gradients again = all.backward();
  CHECK(at::equal(again.xbc, gradients.xbc));
  CHECK(at::equal(again.dt, gradients.dt));
  for (std::size_t s = 0; s + 1 < all.sequences.cu_seqlens.size(); ++s) {
    const std::int64_t begin = all.sequences.cu_seqlens[s], end = all.sequences.cu_seqlens[s + 1];
    Case alone = all;
    alone.sequences = sequences_of({static_cast<std::int32_t>(end - begin)});
    for (at::Tensor* rows : {&alone.xbc, &alone.dt, &alone.dout}) *rows = rows->slice(0, begin, end);
    CHECK(at::equal(alone.forward(), out.slice(0, begin, end)));
    const Gradients own = alone.backward();
    CHECK(at::equal(own.xbc, gradients.xbc.slice(0, begin, end)));
    CHECK(at::equal(own.dt, gradients.dt.slice(0, begin, end)));
  }
}

TEST_CASE("a state space on a card goes on from states, and leaves those that it was given") {
  const std::vector<std::int32_t> lengths = {70, 0, 66};
  for (const StateSpaceLayout& layout : {StateSpaceLayout{4, 40, 2, 72}, StateSpaceLayout{1, 24, 1, 136}}) {
    const Case all(layout, lengths, at::kFloat);
    std::vector<at::Tensor> states(lengths.size()), expected_states(lengths.size());
    expected_states[1] = random({layout.heads, layout.state_dim, layout.head_dim}, 7).to(at::kFloat);
    states[1] = expected_states[1].to(kCard);
    const at::Tensor start = states[1], start_values = start.cpu();
    const auto wide = [&](const Case& in, std::vector<at::Tensor>* of) {
      return reference::state_space(in.xbc.to(at::kDouble), in.dt.to(at::kDouble), in.numbers, layout,
                                    in.sequences, of);
    };
    CHECK(relative_distance(all.forward(&states), wide(all, &expected_states)) < 2e-6);
    CHECK(at::equal(states[1].cpu(), start_values));
    CHECK(states[1].data_ptr() != start.data_ptr());

    for (const std::vector<std::int32_t>& next : {std::vector{1, 1, 1}, std::vector{3, 65, 0}}) {
      const Case more(layout, next, at::kFloat);
      const std::vector<at::Tensor> before = states;
      const at::Tensor kept = before[0].cpu();
      card::reset_report();
      const at::Tensor out = more.forward(&states);
      CHECK(card::report().kernels[kFile] == 2);
      CHECK(relative_distance(out, wide(more, &expected_states)) < 2e-6);
      for (std::size_t s = 0; s < states.size(); ++s) {
        CHECK(states[s].scalar_type() == at::kFloat);
        CHECK(relative_distance(states[s].cpu(), expected_states[s]) < 2e-6);
      }
      CHECK(at::equal(before[0].cpu(), kept));
    }

    // No tokens at all.
    const std::vector<at::Tensor> before = states;
    const Case none(layout, {0, 0, 0}, at::kFloat);
    CHECK(none.forward(&states).size(0) == 0);
    for (std::size_t s = 0; s < states.size(); ++s) CHECK(at::equal(states[s].cpu(), before[s].cpu()));
    CHECK(none.forward().size(0) == 0);
    CHECK(none.backward().xbc.size(0) == 0);
  }
}

TEST_CASE("state spaces on a card that the kernels don't take are the reference's") {
  for (const StateSpaceLayout& layout :
       {StateSpaceLayout{1, 12, 1, 16}, StateSpaceLayout{2, 8, 1, 12}, StateSpaceLayout{1, 8, 1, 264}}) {
    const Case in(layout, {5}, at::kFloat);
    card::reset_report();
    CHECK(relative_distance(in.forward(),
                            reference::state_space(in.xbc, in.dt, in.numbers, layout, in.sequences)) < 1e-6);
    CHECK(in.backward().dt.isfinite().all().item<bool>());
    CHECK(card::report().kernels[kFile] == 0);
  }
}

TEST_CASE("a state space on a card waits for nothing, in launches whose number no length changes") {
  for (const std::vector<std::int32_t>& lengths : {std::vector{3}, std::vector{300, 20}}) {
    const Case in({2, 8, 1, 8}, lengths, at::kBFloat16);
    const at::Tensor xbc = in.xbc.to(kCard), dt = in.dt.to(kCard), dout = in.dout.to(kCard);
    const at::Tensor ddt = at::empty_like(dt);
    const StateSpaceNumbers numbers = in.card_numbers();
    card::reset_report();
    state_space(xbc, dt, numbers, in.layout, in.sequences);
    CHECK(card::report().launches == 2);
    state_space_backward(dout, xbc, dt, numbers, in.layout, in.sequences, ddt);
    CHECK(card::report().launches == 7);
    CHECK(card::report().waits.empty());
    CHECK(card::report().uploads == 0);
    CHECK(card::report().hazards.empty());
  }
}
