#include "ops/gated_delta/gated_delta.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ops/dry_run.h"
#include "support/catch.h"
#include "support/counted_memory.h"
#include "support/error_text.h"
#include "support/gradcheck.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::test;
using Catch::Contains;
using ops::DeltaDecay;
using ops::DeltaGradients;
using ops::DeltaLayout;
using ops::Sequences;

namespace {

using Ends = std::vector<std::int32_t>;

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

Sequences sequences_of(const Ends& ends) {
  Sequences sequences{ends, {}, 0};
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    sequences.max_seqlen = std::max<std::int64_t>(sequences.max_seqlen, ends[s + 1] - ends[s]);
  }
  return sequences;
}

// A layer's input of `tokens`. a_log is as checkpoints have it: rates e^a_log of 0.05 to 16, so that states
// fade in a token for some heads and in hundreds for others.
struct Input {
  Input(const DeltaLayout& of, std::int64_t tokens, at::ScalarType dtype, double a_shift = 0)
      : layout(of),
        qkv(random({tokens, of.width()}, 1, dtype)),
        gates(random({tokens, 2 * of.value_heads}, 2)),
        dout(random({tokens, of.value_heads * of.value_dim}, 3, dtype)) {
    gates.slice(1, of.value_heads).add_(a_shift);
    gates = gates.to(dtype);
    decay.a_log = at::linspace(-3, 2.77, of.value_heads, at::kFloat);
    decay.dt_bias = at::linspace(-4, 1, of.value_heads, at::kFloat);
  }
  DeltaLayout layout;
  at::Tensor qkv, gates, dout;
  DeltaDecay decay;
};

struct Results {
  at::Tensor out, qkv, b, a;
};

Results results_of(const at::Tensor& out, const DeltaGradients& gradients) {
  const auto parts = gradients.gates.chunk(2, 1);
  return {out, gradients.qkv, parts[0], parts[1]};
}

Results found(const Input& in, const Ends& ends) {
  const Sequences sequences = sequences_of(ends);
  return results_of(ops::gated_delta(in.qkv, in.gates, in.decay, in.layout, sequences),
                    ops::gated_delta_backward(in.dout, in.qkv, in.gates, in.decay, in.layout, sequences));
}

Input rows_of(Input in, std::int64_t begin, std::int64_t end) {
  for (at::Tensor* tensor : {&in.qkv, &in.gates, &in.dout})
    *tensor = tensor->slice(0, begin, end).contiguous();
  return in;
}

// The reference's, in fp64. A sequence at a time: its graph holds every token's states.
Results expected(Input in, const Ends& ends) {
  for (at::Tensor* tensor : {&in.qkv, &in.gates, &in.dout}) *tensor = tensor->to(at::kDouble);
  std::vector<at::Tensor> out, qkv, b, a;
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    const Results one = found(rows_of(in, ends[s], ends[s + 1]), {0, ends[s + 1] - ends[s]});
    out.push_back(one.out);
    qkv.push_back(one.qkv);
    b.push_back(one.b);
    a.push_back(one.a);
  }
  return {at::cat(out), at::cat(qkv), at::cat(b), at::cat(a)};
}

struct Distances {
  double forward, backward;
};

// Of the result, and the largest of the gradients': each part by itself, as their sizes differ.
Distances distances(const Results& value, const Results& reference, const DeltaLayout& layout) {
  double backward =
      std::max(relative_distance(value.b, reference.b), relative_distance(value.a, reference.a));
  const std::int64_t ends[] = {0, layout.k_begin(), layout.v_begin(), layout.width()};
  for (int part = 0; part < 3; ++part) {
    backward = std::max(backward, relative_distance(value.qkv.slice(1, ends[part], ends[part + 1]),
                                                    reference.qkv.slice(1, ends[part], ends[part + 1])));
  }
  return {relative_distance(value.out, reference.out), backward};
}

bool equal(const Results& a, const Results& b) {
  return at::equal(a.out, b.out) && at::equal(a.qkv, b.qkv) && at::equal(a.b, b.b) && at::equal(a.a, b.a);
}

// fp32: sums of up to a few hundred terms in another order. bf16: one rounding of the results, of 8 bits.
const Tolerance kTolerances[] = {{at::kFloat, 3e-6, 1e-5, "another order of sums, and chunks"},
                                 {at::kBFloat16, 4e-3, 4e-3, "one rounding of the results"}};

// Lengths on both sides of those that chunks end at or that are computed token by token.
const Ends kEnds{0, 0, 1, 64, 128, 193, 193, 393, 401, 410};

}  // namespace

TEST_CASE("the gated delta rule is that of two tokens worked out by hand") {
  const DeltaLayout layout{.key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 1};
  // k = (3, 4) / 5, then (1, 0); q = (1, 0), then (0, 1); v = 2, then 1; beta = 1 / 2 for both. With a_log =
  // 0 and a + dt_bias = 0, states are halved: e^(-log 2).
  const at::Tensor qkv = at::tensor({5.0, 0.0, 3.0, 4.0, 2.0,  //
                                     0.0, 7.0, 2.0, 0.0, 1.0})
                             .view({2, 5});
  const at::Tensor gates = at::tensor({0.0, -0.5, 0.0, -0.5}).view({2, 2});
  const DeltaDecay decay{at::zeros({1}), at::full({1}, 0.5)};
  // S = k beta v = (0.6, 0.8). Then S = (0.3, 0.4), and S += (1, 0) (1 - 0.3) / 2 = (0.65, 0.4).
  const at::Tensor out = at::tensor({0.6, 0.4}).view({2, 1}) / std::sqrt(2.0);
  std::vector<at::Tensor> states(1);
  const Sequences sequences = sequences_of({0, 2});
  // The norms' epsilon, 1e-6 of a sum of 4, is left out of that.
  CHECK(relative_distance(ops::gated_delta(qkv, gates, decay, layout, sequences, &states), out) < 1e-6);
  CHECK(relative_distance(states[0], at::tensor({0.65, 0.4}).view({1, 2, 1})) < 1e-6);
  const at::Tensor single =
      ops::gated_delta(qkv.to(at::kFloat), gates.to(at::kFloat), decay, layout, sequences, &(states = {{}}));
  CHECK(relative_distance(single, out) < 1e-6);
  CHECK(relative_distance(states[0], at::tensor({0.65, 0.4}).view({1, 2, 1})) < 1e-6);
}

TEST_CASE("the reference's backward passes finite differences") {
  const DeltaLayout layout{.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 2};
  const Input in(layout, 9, at::kDouble);
  const Sequences sequences = sequences_of({0, 4, 4, 9});
  const auto rule = [&](const std::vector<at::Tensor>& parts) {
    return ops::reference::gated_delta(parts[0], parts[1], in.decay, layout, sequences);
  };
  const at::Tensor qkv = in.qkv.clone().requires_grad_(), gates = in.gates.clone().requires_grad_();
  const auto checked = gradcheck(rule, {qkv, gates}, 256);
  CAPTURE(checked.where);
  CHECK(checked.worst < 1e-8);
  // And the pair's backward is that gradient.
  const auto wanted = torch::autograd::grad({(rule({qkv, gates}) * in.dout).sum()}, {qkv, gates});
  const DeltaGradients given =
      ops::gated_delta_backward(in.dout, in.qkv, in.gates, in.decay, layout, sequences);
  CHECK(relative_distance(given.qkv, wanted[0]) < 1e-12);
  CHECK(relative_distance(given.gates, wanted[1]) < 1e-12);
}

TEST_CASE("the kernels are the fp64 reference's rule and gradients, for all sizes and lengths") {
  for (const Tolerance& limit : kTolerances) {
    for (const auto& [key_heads, value_heads] : {std::pair{1, 1}, {2, 4}, {1, 3}}) {
      for (const auto& [key_dim, value_dim] : {std::pair{8, 16}, {128, 128}, {5, 7}, {33, 80}}) {
        CAPTURE(limit.dtype, limit.why, key_heads, value_heads, key_dim, value_dim);
        const Input in({key_heads, value_heads, key_dim, value_dim}, kEnds.back(), limit.dtype);
        const Distances far = distances(found(in, kEnds), expected(in, kEnds), in.layout);
        CHECK(far.forward < limit.forward);
        CHECK(far.backward < limit.backward);
      }
    }
  }
}

TEST_CASE("the tolerance of the kernels sees each part of their input") {
  const DeltaLayout layout{2, 4, 8, 16};
  const Input in(layout, kEnds.back(), at::kFloat);
  const Results right = expected(in, kEnds);
  const auto far = [&](const Input& changed) { return distances(found(changed, kEnds), right, layout); };
  const double forward = kTolerances[0].forward, backward = kTolerances[0].backward;
  for (const std::int64_t column : {std::int64_t{0}, layout.k_begin(), layout.v_begin()}) {
    Input changed = in;
    changed.qkv = in.qkv.clone();
    changed.qkv[300][column] += 1e-2;
    CAPTURE(column);
    CHECK(far(changed).forward > 5 * forward);
    CHECK(far(changed).backward > 5 * backward);
  }
  for (const std::int64_t column : {std::int64_t{0}, layout.value_heads}) {
    Input changed = in;
    changed.gates = in.gates.clone();
    changed.gates[300][column] += 0.1;
    CAPTURE(column);
    CHECK(far(changed).forward > 5 * forward);
    CHECK(far(changed).backward > 5 * backward);
  }
}

TEST_CASE("long sequences stay near the reference, with states that hardly fade and with those that do") {
  for (const double a_shift : {-12.0, 0.0, 3.0}) {
    CAPTURE(a_shift);
    const Input in({1, 2, 32, 32}, 1500, at::kFloat, a_shift);
    const Distances far = distances(found(in, {0, 1500}), expected(in, {0, 1500}), in.layout);
    CHECK(far.forward < 1e-5);
    CHECK(far.backward < 1e-5);
  }
}

TEST_CASE("keys that are all alike, whose systems are the hardest, are solved as well") {
  Input in({1, 1, 32, 32}, 200, at::kFloat, -12.0);
  in.qkv.narrow(1, in.layout.k_begin(), 32).copy_(random({32}, 5) + 1e-3 * random({200, 32}, 6));
  in.gates.narrow(1, 0, 1).fill_(6);  // beta = 0.998
  const Results value = found(in, {0, 200}), reference = expected(in, {0, 200});
  CHECK(relative_distance(value.out, reference.out) < 1e-5);
  CHECK(relative_distance(value.qkv, reference.qkv) < 1e-5);
  // The gates' gradients are small differences of large terms: of the reference in fp32, 2e-5 and 3e-5 off.
  CHECK(relative_distance(value.b, reference.b) < 1e-4);
  CHECK(relative_distance(value.a, reference.a) < 1e-3);
}

TEST_CASE("gates of +-40 give finite results near the reference's") {
  for (const double b : {-40.0, 0.0, 40.0}) {
    for (const double a : {-40.0, 0.0, 40.0}) {
      for (const bool alternate : {false, true}) {  // with gates of 0: a large G, then small steps
        CAPTURE(a, b, alternate);
        Input in({1, 2, 8, 16}, 150, at::kFloat);
        in.gates.narrow(1, 0, 2).fill_(b);
        in.gates.narrow(1, 2, 2).fill_(a);
        if (alternate) in.gates.slice(0, 0, 150, 3).fill_(0);
        // What is 0 in fp32, a gradient through sigmoid(40), may be anything up to the others' rounding.
        const Results value = found(in, {0, 70, 150}), reference = expected(in, {0, 70, 150});
        CHECK(relative_distance(value.out, reference.out) < 1e-5);
        CHECK(relative_distance(value.qkv, reference.qkv) < 1e-5);
        const double scale = std::max(1e-6, reference.a.abs().max().item<double>());
        CHECK((value.a - reference.a).abs().max().item<double>() < 1e-5 * scale);
        const double b_scale = std::max(1e-6, reference.b.abs().max().item<double>());
        CHECK((value.b - reference.b).abs().max().item<double>() < 1e-5 * b_scale);
      }
    }
  }
}

TEST_CASE("queries and keys of zeros have gradients") {
  Input in({1, 2, 8, 16}, 70, at::kFloat);
  in.qkv.slice(1, 0, in.layout.v_begin()).slice(0, 3, 20).zero_();
  const Distances far = distances(found(in, {0, 70}), expected(in, {0, 70}), in.layout);
  CHECK(far.forward < 1e-5);
  CHECK(far.backward < 1e-5);
}

TEST_CASE("a sequence's result depends on nothing that it is packed with, nor on the number of threads") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    CAPTURE(dtype);
    const Input in({2, 4, 8, 16}, kEnds.back(), dtype);
    const int threads = at::get_num_threads();
    const Results packed = found(in, kEnds);
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      CAPTURE(count);
      CHECK(equal(found(in, kEnds), packed));
    }
    at::set_num_threads(threads);
    for (std::size_t s = 0; s + 1 < kEnds.size(); ++s) {
      const auto rows = [&](const at::Tensor& tensor) { return tensor.slice(0, kEnds[s], kEnds[s + 1]); };
      const Input alone = rows_of(in, kEnds[s], kEnds[s + 1]);
      CAPTURE(s);
      CHECK(equal(found(alone, {0, kEnds[s + 1] - kEnds[s]}),
                  {rows(packed.out), rows(packed.qkv), rows(packed.b), rows(packed.a)}));
    }
  }
}

TEST_CASE("a prompt and then token by token with states is the whole sequence") {
  for (const auto& [key_dim, value_dim] : {std::pair{16, 32}, {5, 7}, {128, 128}}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      CAPTURE(key_dim, value_dim, dtype);
      const DeltaLayout layout{2, 4, key_dim, value_dim};
      const Input in(layout, 160, dtype);
      // Two sequences, of 90 and 70 rows, which come in parts: the second's prompt is empty.
      const at::Tensor whole =
          ops::gated_delta(in.qkv, in.gates, in.decay, layout, sequences_of({0, 90, 160}));
      std::vector<at::Tensor> states(2);
      std::vector<std::vector<at::Tensor>> parts(2);
      std::int64_t at[] = {0, 90};
      const auto advance = [&](std::int32_t first, std::int32_t second) {
        const auto rows = [&](const at::Tensor& tensor) {
          return at::cat({tensor.narrow(0, at[0], first), tensor.narrow(0, at[1], second)});
        };
        const std::vector<at::Tensor> before = states,
                                      copies{states[0].defined() ? states[0].clone() : states[0],
                                             states[1].defined() ? states[1].clone() : states[1]};
        const at::Tensor out = ops::gated_delta(rows(in.qkv), rows(in.gates), in.decay, layout,
                                                sequences_of({0, first, first + second}), &states);
        for (int s = 0; s < 2; ++s) {  // nobody else's tensor was written over
          if (before[static_cast<std::size_t>(s)].defined()) {
            CHECK(at::equal(before[static_cast<std::size_t>(s)], copies[static_cast<std::size_t>(s)]));
          }
        }
        parts[0].push_back(out.narrow(0, 0, first));
        parts[1].push_back(out.narrow(0, first, second));
        at[0] += first;
        at[1] += second;
      };
      advance(80, 0);
      for (const at::Tensor& state : states) {
        CHECK(state.sizes() == at::IntArrayRef{4, key_dim, value_dim});
        CHECK(state.scalar_type() == (dtype == at::kDouble ? at::kDouble : at::kFloat));
      }
      CHECK(states[1].abs().max().item<double>() == 0);
      advance(0, 66);
      for (int token = 0; token < 3; ++token) advance(1, 1);
      advance(7, 1);
      const at::Tensor together = at::cat({at::cat(parts[0]), at::cat(parts[1])});
      CHECK(relative_distance(together, whole) < (dtype == at::kBFloat16 ? 4e-3 : 3e-6));
      // The states behind all that, from the whole.
      std::vector<at::Tensor> behind(2);
      ops::gated_delta(in.qkv, in.gates, in.decay, layout, sequences_of({0, 90, 160}), &behind);
      for (std::size_t s = 0; s < 2; ++s) CHECK(relative_distance(states[s], behind[s]) < 3e-6);
    }
  }
}

TEST_CASE("a dry run counts what the kernels take, which grows with a sequence's length and not faster") {
  const DeltaLayout layout{2, 4, 8, 16};
  const auto pass = [](const Input& in) {
    const Sequences sequences = sequences_of({0, 7, static_cast<std::int32_t>(in.qkv.size(0))});
    std::vector<at::Tensor> states(2);
    const at::Tensor out = ops::gated_delta(in.qkv, in.gates, in.decay, in.layout, sequences, &states);
    return ops::gated_delta_backward(in.dout, in.qkv, in.gates, in.decay, in.layout, sequences).qkv;
  };
  std::vector<std::int64_t> peaks;
  for (const std::int64_t tokens : {512, 2048}) {
    Input in(layout, tokens, at::kFloat);
    {
      const CountedMemory memory;
      pass(in);
      peaks.push_back(memory.peak_bytes());
    }
    const ops::DryRun run({.device = at::kCPU, .threads = at::get_num_threads()});
    for (at::Tensor* tensor : {&in.qkv, &in.gates, &in.dout}) *tensor = tensor->to(at::kMeta);
    const std::int64_t before = run.now().total();
    CHECK(pass(in).sizes() == in.qkv.sizes());
    CHECK(run.peak().total() - before == peaks.back());
  }
  CHECK(peaks[1] < 4 * peaks[0]);
}

TEST_CASE("inputs that don't fit are errors") {
  const DeltaLayout layout{1, 2, 8, 16};
  const Input in(layout, 6, at::kFloat);
  const auto error = [&](const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                         const DeltaLayout& of, const Ends& ends) {
    return error_text([&] { ops::gated_delta(qkv, gates, decay, of, sequences_of(ends)); });
  };
  CHECK_THAT(error(in.qkv, in.gates, in.decay, {2, 3, 8, 16}, {0, 6}), Contains("multiple of key heads"));
  CHECK_THAT(error(in.qkv, in.gates, in.decay, {0, 3, 8, 16}, {0, 6}), Contains("multiple of key heads"));
  for (const at::Tensor& qkv :
       {at::Tensor(), in.qkv[0], in.qkv.slice(1, 1), in.qkv.to(at::kInt), in.qkv.t().contiguous().t()}) {
    CHECK_THAT(error(qkv, in.gates, in.decay, layout, {0, 6}), Contains("a dense floating matrix"));
  }
  for (const at::Tensor& gates : {at::Tensor(), in.gates[0], in.gates.slice(0, 1), in.gates.slice(1, 1),
                                  in.gates.to(at::kDouble), in.gates.t().contiguous().t()}) {
    CHECK_THAT(error(in.qkv, gates, in.decay, layout, {0, 6}), Contains("dense gates"));
  }
  for (const at::Tensor& numbers : {at::Tensor(), at::zeros({3})}) {
    CHECK_THAT(error(in.qkv, in.gates, {numbers, in.decay.dt_bias}, layout, {0, 6}),
               Contains("a number for each value head"));
    CHECK_THAT(error(in.qkv, in.gates, {in.decay.a_log, numbers}, layout, {0, 6}),
               Contains("a number for each value head"));
  }
  for (const Ends& ends : {Ends{}, {0, 5}, {0, 7}, {1, 6}, {0, 4, 2, 6}}) {
    CHECK_THAT(error(in.qkv, in.gates, in.decay, layout, ends), Contains("sequences that follow each other"));
  }
  const auto states_error = [&](std::vector<at::Tensor> states) {
    return error_text(
        [&] { ops::gated_delta(in.qkv, in.gates, in.decay, layout, sequences_of({0, 6}), &states); });
  };
  CHECK_THAT(states_error({}), Contains("a state for each sequence"));
  CHECK_THAT(states_error({{}, {}}), Contains("a state for each sequence"));
  CHECK_THAT(states_error({at::zeros({2, 16, 8})}), Contains("states [value_heads, key_dim, value_dim]"));
  for (const at::Tensor& dout :
       {at::Tensor(), in.dout[0], in.dout.slice(0, 1), in.dout.slice(1, 1), in.dout.to(at::kDouble)}) {
    CHECK_THAT(error_text([&] {
                 ops::gated_delta_backward(dout, in.qkv, in.gates, in.decay, layout, sequences_of({0, 6}));
               }),
               Contains("a gradient of the result"));
  }
}
