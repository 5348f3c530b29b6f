#include "ops/state_space/state_space.h"

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
using ops::Sequences;
using ops::StateSpaceLayout;
using ops::StateSpaceNumbers;

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

// Columns of a wider matrix, as steps are of a projection.
at::Tensor columns_like(const at::Tensor& matrix) {
  return at::empty({matrix.size(0), matrix.size(1) + 5}, matrix.options()).narrow(1, 3, matrix.size(1));
}
at::Tensor columns_of(const at::Tensor& matrix) { return columns_like(matrix).copy_(matrix); }

// A layer's input of `tokens`. a_log and dt_bias are as checkpoints have them: rates of 1 to 16, steps of
// about 0.001 to 1, so that states fade in a token for some heads and in hundreds for others.
struct Input {
  Input(const StateSpaceLayout& of, std::int64_t tokens, at::ScalarType dtype, double dt_shift = 0)
      : layout(of),
        xbc(random({tokens, of.width()}, 1, dtype)),
        dt(columns_of((random({tokens, of.heads}, 2) + dt_shift).to(dtype))),
        dout(random({tokens, of.b_begin()}, 3, dtype)),
        numbers{.a_log = at::linspace(0, 2.77, of.heads, at::kFloat),
                .dt_bias = at::linspace(-7, 0.5, of.heads, at::kFloat),
                .d = at::linspace(0.5, 1.5, of.heads, at::kFloat)} {}
  StateSpaceLayout layout;
  at::Tensor xbc, dt, dout;
  StateSpaceNumbers numbers;
};

struct Results {
  at::Tensor out, xbc, dt;
};

Results found(const Input& in, const Ends& ends) {
  const Sequences sequences = sequences_of(ends);
  const at::Tensor ddt = columns_like(in.dt);
  const at::Tensor out = ops::state_space(in.xbc, in.dt, in.numbers, in.layout, sequences);
  return {out, ops::state_space_backward(in.dout, in.xbc, in.dt, in.numbers, in.layout, sequences, ddt), ddt};
}

Input rows_of(Input in, std::int64_t begin, std::int64_t end) {
  for (at::Tensor* tensor : {&in.xbc, &in.dout}) *tensor = tensor->slice(0, begin, end).contiguous();
  in.dt = in.dt.slice(0, begin, end);
  return in;
}

// The reference's, in fp64. A sequence at a time: its graph holds every token's states.
Results expected(Input in, const Ends& ends) {
  for (at::Tensor* tensor : {&in.xbc, &in.dt, &in.dout}) *tensor = tensor->to(at::kDouble);
  std::vector<at::Tensor> out, xbc, dt;
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    const Results one = found(rows_of(in, ends[s], ends[s + 1]), {0, ends[s + 1] - ends[s]});
    out.push_back(one.out);
    xbc.push_back(one.xbc);
    dt.push_back(one.dt);
  }
  return {at::cat(out), at::cat(xbc), at::cat(dt)};
}

struct Distances {
  double forward, backward;
};

// Of the result, and the largest of the gradients': each part by itself, and of the steps each head, as their
// sizes differ.
Distances distances(const Results& value, const Results& reference, const StateSpaceLayout& layout) {
  double backward = 0;
  const std::int64_t ends[] = {0, layout.b_begin(), layout.c_begin(), layout.width()};
  for (int part = 0; part < 3; ++part) {
    backward = std::max(backward, relative_distance(value.xbc.slice(1, ends[part], ends[part + 1]),
                                                    reference.xbc.slice(1, ends[part], ends[part + 1])));
  }
  for (std::int64_t head = 0; head < layout.heads; ++head) {
    backward = std::max(backward, relative_distance(value.dt.select(1, head), reference.dt.select(1, head)));
  }
  return {relative_distance(value.out, reference.out), backward};
}

bool equal(const Results& a, const Results& b) {
  return at::equal(a.out, b.out) && at::equal(a.xbc, b.xbc) && at::equal(a.dt, b.dt);
}

// fp32: sums of up to a few hundred terms in another order. bf16: one rounding of the results, of 8 bits.
const Tolerance kTolerances[] = {{at::kFloat, 3e-6, 1e-5, "another order of sums, and chunks"},
                                 {at::kBFloat16, 4e-3, 4e-3, "one rounding of the results"}};

// Lengths on both sides of those that chunks end at or that are computed token by token.
const Ends kEnds{0, 0, 1, 64, 128, 193, 193, 393, 401, 410};

}  // namespace

TEST_CASE("the state space is that of two tokens worked out by hand") {
  const StateSpaceLayout layout{.heads = 1, .head_dim = 1, .groups = 1, .state_dim = 2};
  // x = 2, then 1; B = (3, 4), then (1, 0); C = (1, 0), then (0, 1). dt + dt_bias = 0: a step is log 2, and
  // with a_log = 0 states are halved.
  const at::Tensor xbc = at::tensor({2.0, 3.0, 4.0, 1.0, 0.0,  //
                                     1.0, 1.0, 0.0, 0.0, 1.0})
                             .view({2, 5});
  const at::Tensor dt = at::full({2, 1}, -0.5);
  const StateSpaceNumbers numbers{at::zeros({1}), at::full({1}, 0.5), at::full({1}, 3.0)};
  // S = 2 log 2 (3, 4); out = 6 log 2 + 6. Then S = log 2 (3, 4) + log 2 (1, 0); out = 4 log 2 + 3.
  const double l = std::log(2.0);
  const at::Tensor out = at::tensor({6 * l + 6, 4 * l + 3}, at::kDouble).view({2, 1});
  const at::Tensor behind = at::tensor({4 * l, 4 * l}, at::kDouble).view({1, 2, 1});
  const Sequences sequences = sequences_of({0, 2});
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    std::vector<at::Tensor> states(1);
    CHECK(relative_distance(
              ops::state_space(xbc.to(dtype), dt.to(dtype), numbers, layout, sequences, &states), out) <
          1e-6);
    CHECK(relative_distance(states[0], behind) < 1e-6);
  }
}

TEST_CASE("the state space's reference passes finite differences") {
  const StateSpaceLayout layout{.heads = 4, .head_dim = 2, .groups = 2, .state_dim = 3};
  const Input in(layout, 9, at::kDouble);
  const Sequences sequences = sequences_of({0, 4, 4, 9});
  const auto rule = [&](const std::vector<at::Tensor>& parts) {
    return ops::reference::state_space(parts[0], parts[1], in.numbers, layout, sequences);
  };
  const at::Tensor xbc = in.xbc.clone().requires_grad_(), dt = in.dt.contiguous().requires_grad_();
  const auto checked = gradcheck(rule, {xbc, dt}, 256);
  CAPTURE(checked.where);
  CHECK(checked.worst < 1e-8);
  // And the pair's backward is that gradient.
  const auto wanted = torch::autograd::grad({(rule({xbc, dt}) * in.dout).sum()}, {xbc, dt});
  const Results given = found(in, {0, 4, 4, 9});
  CHECK(relative_distance(given.xbc, wanted[0]) < 1e-12);
  CHECK(relative_distance(given.dt, wanted[1]) < 1e-12);
}

TEST_CASE("the state space's kernels are the fp64 reference's, for all sizes and lengths") {
  for (const Tolerance& limit : kTolerances) {
    // Groups of up to, and of more heads than a thread takes at a time.
    for (const auto& [heads, groups] : {std::pair{1, 1}, {4, 2}, {3, 1}, {10, 1}, {18, 2}}) {
      for (const auto& [head_dim, state_dim] : {std::pair{16, 8}, {64, 128}, {7, 5}, {80, 33}}) {
        if (heads > 4 && state_dim == 128) continue;  // for the time it takes
        CAPTURE(limit.dtype, limit.why, heads, groups, head_dim, state_dim);
        const Input in({heads, head_dim, groups, state_dim}, kEnds.back(), limit.dtype);
        const Distances far = distances(found(in, kEnds), expected(in, kEnds), in.layout);
        CHECK(far.forward < limit.forward);
        CHECK(far.backward < limit.backward);
      }
    }
  }
}

TEST_CASE("the tolerance of the state space's kernels sees each part of their input") {
  const StateSpaceLayout layout{4, 16, 2, 8};
  const Input in(layout, kEnds.back(), at::kFloat);
  const Results right = expected(in, kEnds);
  const auto far = [&](const Input& changed) { return distances(found(changed, kEnds), right, layout); };
  const auto sees = [&](const Input& changed) {
    CHECK(far(changed).forward > 5 * kTolerances[0].forward);
    CHECK(far(changed).backward > 5 * kTolerances[0].backward);
  };
  for (const std::int64_t column : {std::int64_t{0}, layout.b_begin(), layout.c_begin()}) {
    Input changed = in;
    changed.xbc = in.xbc.clone();
    changed.xbc[300][column] += 0.1;
    CAPTURE(column);
    sees(changed);
  }
  for (const std::int64_t head : {0, 3}) {
    Input changed = in;
    changed.dt = in.dt.clone();
    changed.dt[300][head] += 0.1;
    CAPTURE(head);
    sees(changed);
  }
  for (at::Tensor StateSpaceNumbers::*const of :
       {&StateSpaceNumbers::a_log, &StateSpaceNumbers::dt_bias, &StateSpaceNumbers::d}) {
    Input changed = in;
    changed.numbers.*of = changed.numbers.*of + 0.01;
    sees(changed);
  }
}

TEST_CASE("long state spaces stay near the reference, with states that hardly fade and with those that do") {
  for (const double dt_shift : {-4.0, 0.0, 4.0}) {
    CAPTURE(dt_shift);
    const Input in({2, 32, 1, 32}, 1500, at::kFloat, dt_shift);
    const Distances far = distances(found(in, {0, 1500}), expected(in, {0, 1500}), in.layout);
    CHECK(far.forward < 1e-5);
    CHECK(far.backward < 1e-5);
  }
}

TEST_CASE("steps of +-40 give finite results near the reference's") {
  for (const double dt : {-40.0, 0.0, 40.0}) {
    for (const bool alternate : {false, true}) {  // with steps of softplus(0): a large G, then small ones
      CAPTURE(dt, alternate);
      Input in({2, 16, 1, 8}, 150, at::kFloat);
      in.dt.fill_(dt);
      if (alternate) in.dt.slice(0, 0, 150, 3).fill_(0);
      const Results value = found(in, {0, 70, 150}), reference = expected(in, {0, 70, 150});
      CHECK(relative_distance(value.out, reference.out) < 1e-5);
      CHECK(relative_distance(value.xbc, reference.xbc) < 1e-5);
      CHECK(relative_distance(value.dt, reference.dt) < 1e-5);
    }
  }
}

TEST_CASE("a sequence's state space depends on nothing that it is packed with, nor on the threads") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    CAPTURE(dtype);
    const Input in({20, 16, 2, 8}, kEnds.back(), dtype);
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
                  {rows(packed.out), rows(packed.xbc), rows(packed.dt)}));
    }
  }
}

TEST_CASE("a prompt and then token by token with states is the whole state space") {
  for (const auto& [head_dim, state_dim] : {std::pair{32, 16}, {7, 5}, {64, 128}}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      CAPTURE(head_dim, state_dim, dtype);
      const StateSpaceLayout layout{10, head_dim, 2, state_dim};
      const Input in(layout, 160, dtype);
      // Two sequences, of 90 and 70 rows, which come in parts: the second's prompt is empty.
      const at::Tensor whole =
          ops::state_space(in.xbc, in.dt, in.numbers, layout, sequences_of({0, 90, 160}));
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
        const at::Tensor out = ops::state_space(rows(in.xbc), rows(in.dt), in.numbers, layout,
                                                sequences_of({0, first, first + second}), &states);
        for (std::size_t s = 0; s < 2; ++s) {  // nobody else's tensor was written over
          if (before[s].defined()) CHECK(at::equal(before[s], copies[s]));
        }
        parts[0].push_back(out.narrow(0, 0, first));
        parts[1].push_back(out.narrow(0, first, second));
        at[0] += first;
        at[1] += second;
      };
      advance(80, 0);
      for (const at::Tensor& state : states) {
        CHECK(state.sizes() == at::IntArrayRef{10, state_dim, head_dim});
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
      ops::state_space(in.xbc, in.dt, in.numbers, layout, sequences_of({0, 90, 160}), &behind);
      for (std::size_t s = 0; s < 2; ++s) CHECK(relative_distance(states[s], behind[s]) < 3e-6);
    }
  }
}

TEST_CASE("a dry run counts what the state space's kernels take, which grows with a sequence's length") {
  const StateSpaceLayout layout{10, 16, 1, 8};
  const auto pass = [](const Input& in) {
    const Sequences sequences = sequences_of({0, 7, static_cast<std::int32_t>(in.xbc.size(0))});
    std::vector<at::Tensor> states(2);
    const at::Tensor out = ops::state_space(in.xbc, in.dt, in.numbers, in.layout, sequences, &states);
    return ops::state_space_backward(in.dout, in.xbc, in.dt, in.numbers, in.layout, sequences,
                                     at::empty_like(in.dt));
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
    for (at::Tensor* tensor : {&in.xbc, &in.dt, &in.dout}) *tensor = tensor->to(at::kMeta);
    const std::int64_t before = run.now().total();
    CHECK(pass(in).sizes() == in.xbc.sizes());
    CHECK(run.peak().total() - before == peaks.back());
  }
  CHECK(peaks[1] < 4 * peaks[0]);
}

TEST_CASE("many short sequences take hardly more memory on a GPU than a long one") {
  const StateSpaceLayout layout{.heads = 64, .head_dim = 64, .groups = 1, .state_dim = 128};
  constexpr std::int32_t kTokens = 2048;
  const auto peak = [&](std::int32_t length) {
    Ends ends;
    for (std::int32_t end = 0; end <= kTokens; end += length) ends.push_back(end);
    const ops::DryRun run({.device = at::kCUDA});
    const auto like = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor xbc = at::empty({kTokens, layout.width()}, like), dt = at::empty({kTokens, 64}, like);
    const at::Tensor of_heads = at::empty({64}, like.dtype(at::kFloat));
    const std::int64_t before = run.now().total();
    ops::state_space_backward(at::empty({kTokens, layout.b_begin()}, like), xbc, dt,
                              {of_heads, of_heads, of_heads}, layout, sequences_of(ends), at::empty_like(dt));
    return static_cast<double>(run.peak().total() - before);
  };
  // Twice the states at every 64th token, which are most of it; none between sequences.
  CHECK(peak(kTokens) > 2.0 * 2048 / 64 * 4 * static_cast<double>(layout.state_elements()));
  CHECK(peak(32) < 1.1 * peak(kTokens));
}

TEST_CASE("a state space's inputs that don't fit are errors") {
  const StateSpaceLayout layout{2, 16, 1, 8};
  const Input in(layout, 6, at::kFloat);
  const auto error = [&](const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                         const StateSpaceLayout& of, const Ends& ends) {
    return error_text([&] { ops::state_space(xbc, dt, numbers, of, sequences_of(ends)); });
  };
  CHECK_THAT(error(in.xbc, in.dt, in.numbers, {3, 16, 2, 8}, {0, 6}), Contains("multiple of groups"));
  CHECK_THAT(error(in.xbc, in.dt, in.numbers, {3, 16, 0, 8}, {0, 6}), Contains("multiple of groups"));
  for (const at::Tensor& xbc :
       {at::Tensor(), in.xbc[0], in.xbc.slice(1, 1), in.xbc.to(at::kInt), in.xbc.t().contiguous().t()}) {
    CHECK_THAT(error(xbc, in.dt, in.numbers, layout, {0, 6}), Contains("a dense floating matrix"));
  }
  for (const at::Tensor& dt :
       {at::Tensor(), in.dt[0], in.dt.slice(0, 1), in.dt.slice(1, 1), in.dt.to(at::kDouble)}) {
    CHECK_THAT(error(in.xbc, dt, in.numbers, layout, {0, 6}), Contains("steps [tokens, heads]"));
  }
  for (at::Tensor StateSpaceNumbers::*const of :
       {&StateSpaceNumbers::a_log, &StateSpaceNumbers::dt_bias, &StateSpaceNumbers::d}) {
    for (const at::Tensor& changed : {at::Tensor(), at::zeros({3})}) {
      StateSpaceNumbers numbers = in.numbers;
      numbers.*of = changed;
      CHECK_THAT(error(in.xbc, in.dt, numbers, layout, {0, 6}), Contains("a number for each head"));
    }
  }
  for (const Ends& ends : {Ends{}, {0, 5}, {0, 7}, {1, 6}, {0, 4, 2, 6}}) {
    CHECK_THAT(error(in.xbc, in.dt, in.numbers, layout, ends), Contains("sequences that follow each other"));
  }
  const auto states_error = [&](std::vector<at::Tensor> states) {
    return error_text(
        [&] { ops::state_space(in.xbc, in.dt, in.numbers, layout, sequences_of({0, 6}), &states); });
  };
  CHECK_THAT(states_error({}), Contains("a state for each sequence"));
  CHECK_THAT(states_error({{}, {}}), Contains("a state for each sequence"));
  CHECK_THAT(states_error({at::zeros({2, 16, 8})}), Contains("states [heads, state_dim, head_dim]"));
  const auto backward_error = [&](const at::Tensor& dout, const at::Tensor& ddt) {
    return error_text([&] {
      ops::state_space_backward(dout, in.xbc, in.dt, in.numbers, layout, sequences_of({0, 6}), ddt);
    });
  };
  for (const at::Tensor& dout :
       {at::Tensor(), in.dout[0], in.dout.slice(0, 1), in.dout.slice(1, 1), in.dout.to(at::kDouble)}) {
    CHECK_THAT(backward_error(dout, at::empty_like(in.dt)), Contains("a gradient [tokens"));
  }
  for (const at::Tensor& ddt : {at::Tensor(), in.dt.slice(0, 1), in.dt.to(at::kDouble)})
    CHECK_THAT(backward_error(in.dout, ddt), Contains("a matrix for the steps' gradient"));
}
