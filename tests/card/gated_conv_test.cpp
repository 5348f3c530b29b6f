// The kernels of the gated short convolution on the fake card against fp64 references.
#include "ops/gated_conv/gated_conv.h"

#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/causal_conv_cases.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kFile = "gated_conv_cuda.cu";

// What every dtype holds exactly.
at::Tensor weight_of(at::IntArrayRef sizes, std::uint64_t seed) {
  return random(sizes, seed).to(at::kBFloat16);
}

Forward pair(const at::Tensor& weight, const Sequences& sequences) {
  return [=](const at::Tensor& projected, Backward& backward) {
    const at::Tensor y = gated_conv(projected, weight, sequences);
    backward = [=](const at::Tensor& dy) {
      at::Tensor again;
      const at::Tensor gradient = gated_conv_backward(dy, projected, weight, sequences, &again);
      CHECK(at::equal(again.cpu(), y.cpu()));
      return gradient;
    };
    return y;
  };
}

}  // namespace

TEST_CASE("the gated convolution on a card agrees with its reference over sequences of every length") {
  const auto check = [](const std::vector<std::int32_t>& ends, std::int64_t channels, std::int64_t taps,
                        at::ScalarType weights) {
    CAPTURE(ends, channels, taps, c10::toString(weights));
    const at::Tensor weight = weight_of({channels, taps}, 1).to(weights);
    const Sequences on_host = sequences_to(ends), on_card = sequences_to(ends, kCard);
    const auto reference = [=](const at::Tensor& in) {
      return ops::reference::gated_conv(in, weight.to(at::kDouble), on_host);
    };
    const at::Tensor projected = random({ends.back(), 3 * channels}, 2);
    for (const auto& tolerance : kTolerances) {
      if (tolerance.dtype == at::kDouble) continue;
      const at::Tensor of_rows = (weights == at::kFloat ? weight : weight.to(tolerance.dtype)).to(kCard);
      card::reset_report();
      const auto found =
          distance([&](const at::Tensor& in) { return test::on_card(in, pair(of_rows, on_card)); }, reference,
                   projected, tolerance.dtype);
      INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
      constexpr int kRoundings = 2;  // b x, and the result
      CHECK(found.forward < kRoundings * tolerance.forward);
      CHECK(found.backward < kRoundings * tolerance.backward);
      CHECK(card::report().kernels[kFile] == 2);
      CHECK(card::report().hazards.empty());
    }
  };
  for (const auto weights : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t taps : {2, 3, 4}) check(kEnds, 16, taps, weights);
  }
  check({1}, 8, 3, at::kFloat);
  check({0, 40}, 1032, 3, at::kFloat);  // more than one block of channels, the last not full
  std::vector<std::int32_t> ones;
  for (std::int32_t end = 1; end < 50; ++end) ones.push_back(end);
  check(ones, 24, 3, at::kFloat);
}

namespace {

void check_each_alone(std::int64_t channels, const std::vector<std::int32_t>& ends) {
  CAPTURE(channels);
  const at::Tensor weight = weight_of({channels, 3}, 5).to(kCard);
  const at::Tensor projected = random({ends.back(), 3 * channels}, 6).to(at::kBFloat16).to(kCard);
  const at::Tensor y = gated_conv(projected, weight, sequences_to(ends, kCard));
  const at::Tensor gradient = gated_conv_backward(y, projected, weight, sequences_to(ends, kCard));
  std::int32_t begin = 0;
  for (const std::int32_t end : ends) {
    const at::Tensor alone = projected.slice(0, begin, end);
    const Sequences one = sequences_to({end - begin}, kCard);
    CHECK(at::equal(gated_conv(alone, weight, one).cpu(), y.slice(0, begin, end).cpu()));
    CHECK(at::equal(gated_conv_backward(y.slice(0, begin, end), alone, weight, one).cpu(),
                    gradient.slice(0, begin, end).cpu()));
    begin = end;
  }
}

}  // namespace

TEST_CASE("a sequence's gated convolution on a card doesn't depend on what it is packed with") {
  check_each_alone(16, kEnds);
}

// So many rows and channels that tiles have 8 rows, which short batches hardly have.
TEST_CASE("tiles of many rows give a gated convolution's numbers on a card to the bit", "[.][large]") {
  check_each_alone(4096, {70, 70, 73, 2100});
}

TEST_CASE("a gated convolution on a card goes on behind its first rows, one by one, as it does at once") {
  for (const std::int64_t taps : {2, 3, 4}) {
    CAPTURE(taps);
    const std::int64_t channels = 24, length = 7;
    const at::Tensor all = random({3, length, 3 * channels}, 7).to(at::kHalf).to(kCard);
    const at::Tensor weight = weight_of({channels, taps}, 8).to(at::kFloat).to(kCard);
    const at::Tensor whole = gated_conv(all.flatten(0, 1), weight, sequences_to({7, 14, 21}, kCard));
    const at::Tensor u = all.narrow(2, 0, channels) * all.narrow(2, 2 * channels, channels);
    const at::Tensor seen = at::cat({at::zeros({3, taps - 1, channels}, u.options()), u}, 1);
    card::reset_report();
    std::vector<at::Tensor> parts;
    for (std::int64_t t = 0; t < length; ++t) {
      parts.push_back(gated_conv(all.select(1, t).contiguous(), weight, sequences_to({1, 2, 3}, kCard),
                                 seen.narrow(1, t, taps - 1))
                          .unsqueeze(1));
    }
    CHECK(card::report().kernels[kFile] == length);
    CHECK(card::report().hazards.empty());
    CHECK(at::equal(at::cat(parts, 1).flatten(0, 1).cpu(), whole.cpu()));
  }
}

TEST_CASE("gated convolutions on a card that its kernels don't take go through the reference") {
  const Sequences sequences = sequences_to({3, 9}, kCard);
  const auto count = [&](std::int64_t channels, std::int64_t taps, at::ScalarType dtype) {
    const at::Tensor projected = random({9, 3 * channels}, 9).to(dtype).to(kCard);
    const at::Tensor weight = weight_of({channels, taps}, 10).to(kCard);
    card::reset_report();
    const at::Tensor y = gated_conv(projected, weight, sequences);
    (void)gated_conv_backward(y, projected, weight, sequences);
    CHECK(card::report().hazards.empty());
    return card::report().kernels[kFile];
  };
  CHECK(count(16, 3, at::kBFloat16) == 2);
  CHECK(count(12, 3, at::kBFloat16) == 0);
  CHECK(count(16, 5, at::kBFloat16) == 0);
  CHECK(count(16, 3, at::kDouble) == 0);
}
