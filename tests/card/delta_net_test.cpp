// The kernels beside a gated delta net's recurrence, and that of attention's gate, on the fake card against
// fp64 references.
#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/causal_conv_cases.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/gated_pair.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr double kEps = 1e-5;

// What every dtype holds exactly.
at::Tensor weight_of(at::IntArrayRef sizes, std::uint64_t seed) {
  return random(sizes, seed).to(at::kBFloat16);
}

// Launches of the kernels of `file` in `action`, which mustn't have a hazard.
template <typename Action>
std::int64_t launches(const std::string& file, const Action& action) {
  card::reset_report();
  action();
  CHECK(card::report().hazards.empty());
  return card::report().kernels[file];
}

GatedOperator gated_norm_with(const at::Tensor& weight) {
  return {[=](const at::Tensor& x, const at::Tensor& z) { return gated_norm(x, z, weight, kEps); },
          [=](const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z, const at::Tensor& dz,
              at::Tensor* y) { gated_norm_backward_(dy, x, z, weight, kEps, dz, y); }};
}

const GatedOperator kSigmoidGate{sigmoid_gate, sigmoid_gate_backward_};

// A matrix that begins one element behind the beginning of its memory.
at::Tensor shifted(const at::Tensor& dense) {
  const at::Tensor memory = at::empty({dense.numel() + 1}, dense.options());
  return memory.narrow(0, 1, dense.numel()).view(dense.sizes()).copy_(dense);
}

// The result of an operator, the gradients of both, and the result once more, with the gate and its gradient
// where `place` puts them.
template <typename Place>
std::vector<at::Tensor> run(const GatedOperator& op, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& dy, const Place& place) {
  const at::Tensor dx = dy.clone(), from = place(gate), dgate = place(at::zeros_like(gate));
  at::Tensor again;
  const at::Tensor y = op.forward(x, from);
  op.backward(dx, x, from, dgate, &again);
  return {y.cpu(), dx.cpu(), dgate.cpu(), again.cpu()};
}

// That an operator gives the same for gates whose rows no kernel takes, and that none takes them.
void check_other_rows(const std::string& file, const GatedOperator& op, at::ScalarType dtype) {
  const auto made = [&](std::uint64_t seed) { return random({7, 64}, seed).to(dtype).to(kCard); };
  const at::Tensor x = made(31), gate = made(32), dy = made(33);
  std::vector<at::Tensor> expected, found;
  CHECK(launches(file, [&] { expected = run(op, x, gate, dy, [](const at::Tensor& g) { return g; }); }) == 2);
  const auto odd_rows = [](const at::Tensor& g) {
    return at::empty({g.size(0), g.size(1) + 1}, g.options()).narrow(1, 0, g.size(1)).copy_(g);
  };
  const auto columns = [](const at::Tensor& g) { return g.t().contiguous().t(); };
  const auto check = [&](const auto& place) {
    CHECK(launches(file, [&] { found = run(op, x, gate, dy, place); }) == 0);
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(relative_distance(found[i], expected[i]) < (dtype == at::kFloat ? 2e-6 : 8e-3));
  };
  check(shifted);
  check(odd_rows);
  check(columns);
}

}  // namespace

TEST_CASE("the causal convolution on a card agrees with its reference over sequences of every length") {
  const auto check = [](const std::vector<std::int32_t>& ends, std::int64_t channels, std::int64_t taps,
                        at::ScalarType weights, bool biased = false) {
    CAPTURE(ends, channels, taps, c10::toString(weights), biased);
    const at::Tensor weight = weight_of({channels, taps}, 1).to(weights);
    const at::Tensor bias = biased ? weight_of({channels}, 30).to(weights) : at::Tensor();
    const Sequences on_host = sequences_to(ends), on_card = sequences_to(ends, kCard);
    const auto reference = [=](const at::Tensor& x) {
      return ops::reference::causal_conv(x, weight.to(at::kDouble), on_host, {}, bias);
    };
    const at::Tensor x = random({ends.back(), channels}, 2);
    for (const auto& tolerance : kTolerances) {
      if (tolerance.dtype == at::kDouble) continue;
      const auto frozen = [&](const at::Tensor& parameters) {
        return parameters.to(weights == at::kFloat ? weights : tolerance.dtype).to(kCard);
      };
      const auto pair = convolution_pair(frozen(weight), on_card, biased ? frozen(bias) : bias);
      card::reset_report();
      const auto found = distance([&](const at::Tensor& in) { return test::on_card(in, pair); }, reference, x,
                                  tolerance.dtype);
      INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
      CHECK(found.forward < tolerance.forward);
      CHECK(found.backward < tolerance.backward);
      CHECK(card::report().kernels["causal_conv_cuda.cu"] == 2);
      CHECK(card::report().hazards.empty());
    }
  };
  for (const auto weights : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t taps : {2, 3, 4}) {
      for (const bool biased : {false, true}) check(kEnds, 16, taps, weights, biased);
    }
  }
  check({1}, 8, 4, at::kFloat);
  check({0, 40}, 1032, 4, at::kFloat, /*biased=*/true);  // more than one block of channels, the last not full
  std::vector<std::int32_t> ones;
  for (std::int32_t end = 1; end < 50; ++end) ones.push_back(end);
  check(ones, 24, 4, at::kFloat);
}

TEST_CASE("tiles of many rows give a convolution's numbers on a card to the bit", "[.][large]") {
  // So many rows and channels that tiles have 16 rows and 32, which short batches hardly have.
  const std::int64_t channels = 4096, taps = 4;
  const std::vector<std::int32_t> ends{700, 700, 703, 1990, 2051, 8200};
  const at::Tensor weight = weight_of({channels, taps}, 3).to(kCard);
  const at::Tensor x = random({ends.back(), channels}, 4).to(at::kBFloat16).to(kCard);
  const at::Tensor dx = at::empty_like(x);
  const at::Tensor y = causal_conv(x, weight, sequences_to(ends, kCard));
  causal_conv_backward(y, x, weight, sequences_to(ends, kCard), dx);
  std::int32_t begin = 0;
  for (const std::int32_t end : {700, 703, 1990}) {
    const at::Tensor alone = x.slice(0, begin, end), gradient = at::empty_like(alone);
    const Sequences one = sequences_to({end - begin}, kCard);
    CHECK(at::equal(causal_conv(alone, weight, one).cpu(), y.slice(0, begin, end).cpu()));
    causal_conv_backward(y.slice(0, begin, end), alone, weight, one, gradient);
    CHECK(at::equal(gradient.cpu(), dx.slice(0, begin, end).cpu()));
    begin = end;
  }
}

TEST_CASE("a sequence's convolution on a card doesn't depend on what it is packed with") {
  const at::Tensor weight = weight_of({16, 4}, 5).to(kCard);
  const at::Tensor x = random({kEnds.back(), 16}, 6).to(at::kBFloat16).to(kCard), dx = at::empty_like(x);
  const at::Tensor y = causal_conv(x, weight, sequences_to(kEnds, kCard));
  causal_conv_backward(y, x, weight, sequences_to(kEnds, kCard), dx);
  std::int32_t begin = 0;
  for (const std::int32_t end : kEnds) {
    const at::Tensor alone = x.slice(0, begin, end), gradient = at::empty_like(alone);
    const Sequences one = sequences_to({end - begin}, kCard);
    CHECK(at::equal(causal_conv(alone, weight, one).cpu(), y.slice(0, begin, end).cpu()));
    causal_conv_backward(y.slice(0, begin, end), alone, weight, one, gradient);
    CHECK(at::equal(gradient.cpu(), dx.slice(0, begin, end).cpu()));
    begin = end;
  }
}

TEST_CASE("a convolution on a card goes on behind its first rows, one by one, as it does at once") {
  for (const std::int64_t taps : {2, 3, 4}) {
    CAPTURE(taps);
    const std::int64_t channels = 24, length = 7;
    const at::Tensor all = random({3, length, channels}, 7).to(at::kHalf).to(kCard);
    const at::Tensor weight = weight_of({channels, taps}, 8).to(at::kFloat).to(kCard);
    const at::Tensor bias = taps == 3 ? at::Tensor() : weight_of({channels}, 29).to(at::kHalf).to(kCard);
    const at::Tensor whole =
        causal_conv(all.flatten(0, 1), weight, sequences_to({7, 14, 21}, kCard), {}, bias);
    const at::Tensor seen = at::cat({at::zeros({3, taps - 1, channels}, all.options()), all}, 1);
    for (const std::int64_t first : {0, 1, 5}) {
      // `before` is a view: the kernel gets a copy.
      std::vector<at::Tensor> parts;
      const auto ends = static_cast<std::int32_t>(first);
      CHECK(launches("causal_conv_cuda.cu", [&] {
              parts.push_back(causal_conv(all.narrow(1, 0, first).flatten(0, 1), weight,
                                          sequences_to({ends, 2 * ends, 3 * ends}, kCard),
                                          seen.narrow(1, 0, taps - 1), bias)
                                  .view({3, first, channels}));
              for (std::int64_t t = first; t < length; ++t) {
                parts.push_back(causal_conv(all.select(1, t), weight, sequences_to({1, 2, 3}, kCard),
                                            seen.narrow(1, t, taps - 1), bias)
                                    .unsqueeze(1));
              }
            }) == length - first + (first > 0 ? 1 : 0));
      CHECK(at::equal(at::cat(parts, 1).flatten(0, 1).cpu(), whole.cpu()));
    }
  }
}

TEST_CASE("convolutions on a card that its kernels don't take go through the reference") {
  const Sequences sequences = sequences_to({3, 9}, kCard);
  const at::Tensor x = random({9, 16}, 9).to(at::kBFloat16).to(kCard);
  const at::Tensor weight = weight_of({16, 4}, 10).to(kCard), y = causal_conv(x, weight, sequences);
  const auto count = [&](const at::Tensor& in, const at::Tensor& w, const Sequences& s) {
    return launches("causal_conv_cuda.cu", [&] {
      const at::Tensor dx = at::empty_like(in), found = causal_conv(in, w, s);
      causal_conv_backward(found, in, w, s, dx);
      if (w.sizes() == weight.sizes() && in.sizes() == x.sizes())
        CHECK(relative_distance(found.cpu(), y.cpu()) < 8e-3);
    });
  };
  CHECK(count(x, weight, sequences) == 2);
  CHECK(count(x.narrow(0, 0, 0), weight, sequences_to({0, 0}, kCard)) == 0);  // no rows, no launch
  CHECK(count(x, weight.to(at::kFloat), sequences) == 2);
  CHECK(count(x, weight.to(at::kHalf), sequences) == 0);
  CHECK(count(x, shifted(weight), sequences) == 0);
  CHECK(count(x, weight.t().contiguous().t(), sequences) == 0);
  CHECK(count(shifted(x), weight, sequences) == 0);
  CHECK(count(at::zeros({9, 17}, x.options()).narrow(1, 0, 16).copy_(x), weight, sequences) == 0);
  CHECK(count(x.narrow(1, 0, 12), weight.narrow(0, 0, 12), sequences) == 0);
  CHECK(count(x, at::ones({16, 5}, x.options()), sequences) == 0);
  CHECK(count(x, at::ones({16, 1}, x.options()), sequences) == 0);
  CHECK(count(x.to(at::kDouble), weight, sequences) == 0);
  Sequences on_host = sequences;
  on_host.cu_seqlens_device = sequences.cu_seqlens_device.cpu();
  CHECK(count(x, weight, on_host) == 0);
  on_host.cu_seqlens_device.reset();
  CHECK(count(x, weight, on_host) == 0);
  const auto biased = [&](const at::Tensor& bias) {
    return launches("causal_conv_cuda.cu", [&] {
      const at::Tensor dx = at::empty_like(x), found = causal_conv(x, weight, sequences, {}, bias);
      causal_conv_backward(found, x, weight, sequences, dx, bias);
      CHECK(relative_distance(found.cpu(), causal_conv(x.cpu(), weight.cpu(), sequences, {}, bias.cpu())) <
            8e-3);
    });
  };
  const at::Tensor bias = weight_of({16}, 28).to(kCard);
  CHECK(biased(bias) == 2);
  CHECK(biased(bias.to(at::kFloat)) == 2);
  CHECK(biased(bias.to(at::kHalf)) == 2);  // widened
  CHECK(biased(shifted(bias)) == 0);
  CHECK(biased(at::stack({bias, bias}, 1).select(1, 0)) == 0);
  // A gradient whose rows aren't aligned.
  CHECK(launches("causal_conv_cuda.cu", [&] { causal_conv_backward(y, x, weight, sequences, shifted(x)); }) ==
        0);
  CHECK(launches("causal_conv_cuda.cu",
                 [&] { causal_conv_backward(shifted(y), x, weight, sequences, at::empty_like(x)); }) == 0);
}

TEST_CASE("the gated norm on a card agrees with its reference, with gates in wider rows") {
  struct Form {
    std::int64_t head, heads;
  };
  // A lane a head, lanes without elements, whole warps.
  for (const Form form : {Form{8, 3}, Form{24, 5}, Form{128, 2}, Form{64, 1}}) {
    for (const auto weights : {at::kBFloat16, at::kFloat}) {
      CAPTURE(form.head, form.heads, c10::toString(weights));
      const at::Tensor weight = weight_of({form.head}, 11);
      for (const auto& tolerance : kTolerances) {
        if (tolerance.dtype == at::kDouble) continue;
        const at::Tensor of_rows = weight.to(weights == at::kFloat ? weights : tolerance.dtype).to(kCard);
        card::reset_report();
        const auto found = distance(
            [&](const at::Tensor& rows) { return on_card(rows, gated_pair(gated_norm_with(of_rows))); },
            test::of_rows([&](const at::Tensor& x, const at::Tensor& z) {
              return ops::reference::gated_norm(x, z, weight.to(at::kDouble), kEps);
            }),
            random({19, 2 * form.heads * form.head}, 12), tolerance.dtype);
        INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
        CHECK(found.forward < tolerance.forward);
        CHECK(found.backward < tolerance.backward);
        CHECK(card::report().kernels["gated_norm_cuda.cu"] == 3);
        CHECK(card::report().hazards.empty());
      }
    }
  }
}

TEST_CASE("gated norms on a card that its kernels don't take go through the reference") {
  const GatedOperator op = gated_norm_with(weight_of({32}, 13).to(at::kFloat).to(kCard));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) check_other_rows("gated_norm_cuda.cu", op, dtype);
  const auto count = [](std::int64_t rows, std::int64_t width, const at::Tensor& weight,
                        at::ScalarType dtype) {
    const at::Tensor x = random({rows, width}, 14).to(dtype).to(kCard);
    return launches("gated_norm_cuda.cu", [&] { (void)gated_norm(x, x, weight.to(kCard), kEps); });
  };
  CHECK(count(3, 256, weight_of({256}, 15), at::kBFloat16) == 1);
  CHECK(count(3, 256, weight_of({256}, 15), at::kFloat) == 0);
  CHECK(count(3, 128, weight_of({128}, 15).to(at::kFloat), at::kFloat) == 1);
  CHECK(count(3, 12, weight_of({12}, 15), at::kBFloat16) == 0);
  CHECK(count(3, 64, weight_of({32}, 15).to(at::kHalf), at::kBFloat16) == 1);  // widened
  CHECK(count(3, 64, shifted(weight_of({32}, 15).to(kCard)), at::kBFloat16) == 0);
  CHECK(count(3, 64, weight_of({64}, 15).slice(0, 0, 64, 2), at::kDouble) == 0);
  CHECK(count(0, 64, weight_of({32}, 15), at::kBFloat16) == 0);
}

TEST_CASE("the sigmoid gate on a card agrees with its reference, with gates in wider rows") {
  // Less than a block, several blocks, of which the last isn't full.
  for (const std::int64_t width : {8, 64, 2056, 4104}) {
    CAPTURE(width);
    check_kernel_dtypes("sigmoid_gate_cuda.cu", gated_pair(kSigmoidGate),
                        of_rows([](const at::Tensor& x, const at::Tensor& gate) {
                          return ops::reference::sigmoid_gate(x, gate);
                        }),
                        random({11, 2 * width}, 16));
  }
}

TEST_CASE("sigmoid gates on a card that its kernels don't take go through the reference") {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    check_other_rows("sigmoid_gate_cuda.cu", kSigmoidGate, dtype);
  const auto count = [](at::IntArrayRef sizes, at::ScalarType dtype) {
    const at::Tensor x = random(sizes, 17).to(dtype).to(kCard);
    return launches("sigmoid_gate_cuda.cu", [&] { (void)sigmoid_gate(x, x); });
  };
  CHECK(count({3, 12}, at::kFloat) == 1);
  CHECK(count({3, 12}, at::kBFloat16) == 0);
  CHECK(count({3, 16}, at::kDouble) == 0);
  CHECK(count({0, 16}, at::kFloat) == 0);
  // A launch has 65,535 blocks along the rows at most.
  const at::Tensor x = random({65540, 8}, 18).to(at::kHalf).to(kCard), y = sigmoid_gate(x, x);
  CHECK(at::equal(y.slice(0, 65530).cpu(), sigmoid_gate(x.slice(0, 65530), x.slice(0, 65530)).cpu()));
}

TEST_CASE("gradients of gates may be written over the gates on a card") {
  for (const auto& op : {kSigmoidGate, gated_norm_with(weight_of({32}, 19).to(kCard))}) {
    const at::Tensor x = random({9, 64}, 20).to(at::kBFloat16).to(kCard), gate = x.flip(0), dy = x.flip(1);
    const auto apart = run(op, x, gate, dy, [](const at::Tensor& g) { return g; });
    const at::Tensor dx = dy.clone(), over = gate.clone();
    op.backward(dx, x, over, over, nullptr);
    CHECK(at::equal(over.cpu(), apart[2]));
    CHECK(at::equal(dx.cpu(), apart[1]));
  }
}
