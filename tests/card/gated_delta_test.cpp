// The gated delta rule's kernels on the fake card, against the fp64 reference: values, gradients, states.
#include "ops/gated_delta/gated_delta.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "card/kernel_checks.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kFile = "gated_delta_cuda.cu";

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

// An input whose values `dtype` holds. Some heads forget nearly all within a chunk, others hardly anything.
struct Case {
  Case(const DeltaLayout& heads, const std::vector<std::int32_t>& lengths, at::ScalarType dtype)
      : layout(heads), sequences(sequences_of(lengths)) {
    const std::int64_t tokens = sequences.cu_seqlens.back();
    qkv = random({tokens, layout.width()}, 1).to(dtype);
    gates = random({tokens, 2 * layout.value_heads}, 2).to(dtype);
    dout = random({tokens, layout.value_heads * layout.value_dim}, 3).to(dtype);
    decay.a_log = at::linspace(-5, 2, layout.value_heads, at::kFloat);
    decay.dt_bias = random({layout.value_heads}, 4).to(at::kFloat);
  }

  DeltaDecay card_decay() const { return {decay.a_log.to(kCard), decay.dt_bias.to(kCard)}; }
  at::Tensor forward(std::vector<at::Tensor>* states = nullptr) const {
    return gated_delta(qkv.to(kCard), gates.to(kCard), card_decay(), layout, sequences, states).cpu();
  }
  DeltaGradients backward() const {
    const DeltaGradients gradients =
        gated_delta_backward(dout.to(kCard), qkv.to(kCard), gates.to(kCard), card_decay(), layout, sequences);
    return {gradients.qkv.cpu(), gradients.gates.cpu()};
  }

  DeltaLayout layout;
  Sequences sequences;
  at::Tensor qkv, gates, dout;
  DeltaDecay decay;
};

// The largest distance of q's, k's or v's part of an output or gradient from the fp64 one.
double parts_distance(const at::Tensor& value, const at::Tensor& expected, const DeltaLayout& layout) {
  double most = 0;
  const std::int64_t k = layout.k_begin(), v = layout.v_begin(), end = layout.width();
  for (const auto& [from, to] : {std::pair{std::int64_t{0}, k}, std::pair{k, v}, std::pair{v, end}})
    most = std::max(most, relative_distance(value.slice(1, from, to), expected.slice(1, from, to)));
  return most;
}

void check_case(const Case& in, const Tolerance& tolerance) {
  CAPTURE(in.layout.key_heads, in.layout.value_heads, in.layout.key_dim, in.layout.value_dim,
          c10::toString(in.qkv.scalar_type()), in.sequences.cu_seqlens);
  card::reset_report();
  const at::Tensor out = in.forward();
  CHECK(card::report().kernels[kFile] == 2);
  card::reset_report();
  const DeltaGradients gradients = in.backward();
  CHECK(card::report().kernels[kFile] == 2);
  CHECK(card::report().kernels["gated_delta_reverse_cuda.cu"] == 1);
  CHECK(card::report().kernels["gated_delta_gradients_cuda.cu"] == 1);
  CHECK(card::report().hazards.empty());

  const at::Tensor qkv = in.qkv.to(at::kDouble).requires_grad_(true);
  const at::Tensor gates = in.gates.to(at::kDouble).requires_grad_(true);
  const at::Tensor expected = reference::gated_delta(qkv, gates, in.decay, in.layout, in.sequences);
  const auto exact = torch::autograd::grad({expected}, {qkv, gates}, {in.dout.to(at::kDouble)});
  CHECK(out.scalar_type() == in.qkv.scalar_type());
  CHECK(relative_distance(out, expected) < tolerance.forward);
  CHECK(parts_distance(gradients.qkv, exact[0], in.layout) < tolerance.backward);
  const std::int64_t heads = in.layout.value_heads;
  const at::Tensor b = exact[1].slice(1, 0, heads), a = exact[1].slice(1, heads);
  CHECK(relative_distance(gradients.gates.slice(1, 0, heads), b) < tolerance.backward);
  CHECK(relative_distance(gradients.gates.slice(1, heads), a) < tolerance.backward);
  // A token further they are far from each other.
  CHECK(relative_distance(out.roll(1, 0), expected) > 0.2);
  CHECK(relative_distance(gradients.qkv.roll(1, 0), exact[0]) > 0.2);
  CHECK(relative_distance(gradients.gates.roll(1, 0), exact[1]) > 0.2);
}

const Tolerance kDeltaTolerances[] = {
    {at::kFloat, 1e-5, 3e-5, "fp32 sums over tokens"},
    {at::kBFloat16, 4e-3, 6e-3, "one rounding to 8 bits each way"},
    {at::kHalf, 6e-4, 1e-3, "one rounding to 11 bits each way"},
};

}  // namespace

TEST_CASE("the gated delta rule on a card: lengths about a chunk's, heads that share keys, each dtype") {
  const std::vector<std::int32_t> lengths = {0, 1, 63, 64, 0, 65, 200};
  for (const Tolerance& tolerance : kDeltaTolerances) {
    INFO(tolerance.why);
    for (const DeltaLayout& layout :
         {DeltaLayout{1, 1, 8, 16}, DeltaLayout{2, 4, 8, 16}, DeltaLayout{1, 3, 16, 8}})
      check_case(Case(layout, lengths, tolerance.dtype), tolerance);
  }
}

TEST_CASE("the gated delta rule on a card: heads of 128, and such that fill no tile or slice") {
  check_case(Case({1, 2, 128, 128}, {70, 130}, at::kFloat), kDeltaTolerances[0]);
  check_case(Case({1, 1, 128, 128}, {66}, at::kBFloat16), kDeltaTolerances[1]);
  check_case(Case({1, 1, 72, 104}, {129}, at::kFloat), kDeltaTolerances[0]);
  check_case(Case({1, 2, 64, 40}, {65}, at::kFloat), kDeltaTolerances[0]);
}

TEST_CASE("gradients of decays on a card are exact however much a head forgets from a token to the next") {
  // Sums in which large terms cancel are 1e-5 to 4e-3 off, differences of sums of g in fp32 1e-5 to 1e-3.
  for (const double a_log : {-3.0, 1.0, 2.0, 2.77, 3.5}) {
    for (const bool alternate :
         {false, true}) {  // with tokens that forget little among others that forget all
      CAPTURE(a_log, alternate);
      Case in({1, 1, 16, 24}, {64, 70}, at::kFloat);
      in.decay.a_log.fill_(a_log);
      if (alternate) {
        in.gates.select(1, 1).fill_(30);
        in.gates.select(1, 1).slice(0, 0, 134, 3).fill_(-3);
        in.gates.select(1, 1).slice(0, 125, 130).fill_(-3);  // also around the end of a chunk, row 127
      }
      const DeltaGradients gradients = in.backward();
      const at::Tensor qkv = in.qkv.to(at::kDouble), gates = in.gates.to(at::kDouble).requires_grad_(true);
      const at::Tensor out = reference::gated_delta(qkv, gates, in.decay, in.layout, in.sequences);
      const at::Tensor expected = torch::autograd::grad({out}, {gates}, {in.dout.to(at::kDouble)})[0];
      CHECK(relative_distance(in.forward(), out) < 2e-6);
      CHECK(relative_distance(gradients.gates.narrow(1, 0, 1), expected.narrow(1, 0, 1)) < 2e-6);
      CHECK(relative_distance(gradients.gates.narrow(1, 1, 1), expected.narrow(1, 1, 1)) < 2e-6);
    }
  }
}

TEST_CASE("a gated delta rule's result on a card doesn't depend on what a sequence is packed with") {
  const DeltaLayout layout{1, 2, 16, 40};
  const Case all(layout, {70, 0, 130, 5}, at::kBFloat16);
  const at::Tensor out = all.forward();
  const DeltaGradients gradients = all.backward();
  CHECK(at::equal(all.forward(), out));
  CHECK(at::equal(all.backward().qkv, gradients.qkv));
  for (std::size_t s = 0; s + 1 < all.sequences.cu_seqlens.size(); ++s) {
    const std::int64_t begin = all.sequences.cu_seqlens[s], end = all.sequences.cu_seqlens[s + 1];
    Case alone = all;
    alone.sequences = sequences_of({static_cast<std::int32_t>(end - begin)});
    for (at::Tensor* rows : {&alone.qkv, &alone.gates, &alone.dout}) *rows = rows->slice(0, begin, end);
    CHECK(at::equal(alone.forward(), out.slice(0, begin, end)));
    const DeltaGradients own = alone.backward();
    CHECK(at::equal(own.qkv, gradients.qkv.slice(0, begin, end)));
    CHECK(at::equal(own.gates, gradients.gates.slice(0, begin, end)));
  }
}

TEST_CASE("a gated delta rule on a card goes on from states, and leaves those that it was given") {
  const DeltaLayout layout{1, 2, 16, 40};
  const std::vector<std::int32_t> lengths = {70, 0, 66};
  const Case all(layout, lengths, at::kFloat);
  std::vector<at::Tensor> states(lengths.size()), expected_states(lengths.size());
  states[1] = expected_states[1] = random({2, 16, 40}, 7).to(at::kFloat);
  states[1] = states[1].to(kCard);
  const at::Tensor start = states[1];
  const auto wide = [&](const Case& in, std::vector<at::Tensor>* of) {
    return reference::gated_delta(in.qkv.to(at::kDouble), in.gates.to(at::kDouble), in.decay, layout,
                                  in.sequences, of);
  };
  CHECK(relative_distance(all.forward(&states), wide(all, &expected_states)) < 1e-5);
  CHECK(at::equal(states[1].cpu(), start.cpu()));
  CHECK(states[1].data_ptr() != start.data_ptr());

  for (const std::vector<std::int32_t>& next : {std::vector{1, 1, 1}, std::vector{3, 65, 0}}) {
    const Case more(layout, next, at::kFloat);
    const std::vector<at::Tensor> before = states;
    const at::Tensor kept = before[0].cpu();
    card::reset_report();
    const at::Tensor out = more.forward(&states);
    CHECK(card::report().kernels[kFile] == 2);
    CHECK(relative_distance(out, wide(more, &expected_states)) < 1e-5);
    for (std::size_t s = 0; s < states.size(); ++s) {
      CHECK(states[s].scalar_type() == at::kFloat);
      CHECK(relative_distance(states[s].cpu(), expected_states[s]) < 1e-5);
    }
    CHECK(at::equal(before[0].cpu(), kept));
  }

  // No tokens at all.
  const std::vector<at::Tensor> before = states;
  const Case none(layout, {0, 0, 0}, at::kFloat);
  CHECK(none.forward(&states).size(0) == 0);
  for (std::size_t s = 0; s < states.size(); ++s) CHECK(at::equal(states[s].cpu(), before[s].cpu()));
  CHECK(none.forward().size(0) == 0);
  CHECK(none.backward().gates.size(0) == 0);
}

TEST_CASE("gated delta rules on a card that the kernels don't take are the reference's") {
  for (const DeltaLayout& layout :
       {DeltaLayout{1, 1, 12, 16}, DeltaLayout{1, 1, 8, 12}, DeltaLayout{1, 1, 136, 8}}) {
    const Case in(layout, {5}, at::kFloat);
    card::reset_report();
    CHECK(relative_distance(in.forward(),
                            reference::gated_delta(in.qkv, in.gates, in.decay, layout, in.sequences)) < 1e-6);
    CHECK(in.backward().qkv.isfinite().all().item<bool>());
    CHECK(card::report().kernels[kFile] == 0);
  }
}

TEST_CASE("a gated delta rule on a card waits for nothing, in launches whose number no length changes") {
  for (const std::vector<std::int32_t>& lengths : {std::vector{3}, std::vector{300, 20}}) {
    const Case in({1, 1, 8, 8}, lengths, at::kBFloat16);
    const at::Tensor qkv = in.qkv.to(kCard), gates = in.gates.to(kCard), dout = in.dout.to(kCard);
    const DeltaDecay decay = in.card_decay();
    card::reset_report();
    gated_delta(qkv, gates, decay, in.layout, in.sequences);
    CHECK(card::report().launches == 2);
    gated_delta_backward(dout, qkv, gates, decay, in.layout, in.sequences);
    CHECK(card::report().launches == 6);
    CHECK(card::report().waits.empty());
    CHECK(card::report().uploads == 0);
    CHECK(card::report().hazards.empty());
  }
}
