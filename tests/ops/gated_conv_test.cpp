#include "ops/gated_conv/gated_conv.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/causal_conv_cases.h"
#include "ops/distance.h"
#include "ops/dry_run.h"
#include "support/error_text.h"
#include "support/poisoned_memory.h"
#include "support/reference_ops.h"

using namespace lorikeet::ops;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

Forward pair(const at::Tensor& weight, const Sequences& sequences) {
  return [=](const at::Tensor& projected, Backward& backward) {
    const at::Tensor y = gated_conv(projected, weight, sequences);
    backward = [=](const at::Tensor& dy) {
      at::Tensor again;
      const at::Tensor gradient = gated_conv_backward(dy, projected, weight, sequences, &again);
      CHECK(at::equal(again, y));
      CHECK(at::equal(gated_conv_backward(dy, projected, weight, sequences), gradient));
      return gradient;
    };
    return y;
  };
}

}  // namespace

TEST_CASE("a gated convolution multiplies before its sums and behind them: numbers by hand") {
  // Taps 1, 2, 3 with the last on the row itself. Rows [b | c | x] of one channel; u = b x is 1, 2, -4, 0.5.
  const at::Tensor weight = at::tensor({1.0, 2.0, 3.0}).view({1, 3});
  const at::Tensor projected =
      at::tensor({2.0, 1.0, 0.5, 0.5, 10.0, 4.0, 8.0, -1.0, -0.5, 0.25, 3.0, 2.0}).view({4, 3});
  const Sequences sequences = sequences_to({3, 3, 4});
  const at::Tensor before = at::tensor({1.0, -2.0, 9.0, 9.0, 0.0, 1.0}).view({3, 2, 1});
  const at::Tensor expected = at::tensor({3.0, 80.0, 7.0, 4.5}).view({4, 1});
  const at::Tensor after = at::tensor({0.0, 60.0, 7.0, 10.5}).view({4, 1});
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor in = projected.to(dtype), w = weight.to(dtype);
    CHECK(at::equal(gated_conv(in, w, sequences), expected.to(dtype)));
    CHECK(at::equal(gated_conv(in, w, sequences, before.to(dtype)), after.to(dtype)));
  }
}

TEST_CASE("the gated convolution's reference has the gradients of finite differences") {
  for (const std::int64_t taps : {1, 3, 4}) {
    const at::Tensor weight = convolution_weight(3, taps).to(at::kDouble);
    CHECK(
        gradcheck(
            [&](const auto& in) { return reference::gated_conv(in[0], weight, sequences_to({5, 5, 6, 9})); },
            {leaf({9, 9}, 1)})
            .worst < 1e-7);
  }
}

TEST_CASE("the gated convolution agrees with its reference in every dtype, forward and backward") {
  const Sequences sequences = sequences_to(kEnds);
  const auto check = [&](std::int64_t channels, std::int64_t taps, at::ScalarType weights) {
    CAPTURE(channels, taps, c10::toString(weights));
    const at::Tensor weight = convolution_weight(channels, taps).to(weights);
    check_all_dtypes(
        [&](const auto& x) { return as_autograd(x, pair(weight, sequences)); },
        [&](const auto& x) { return reference::gated_conv(x, weight.to(at::kDouble), sequences); },
        leaf({kEnds.back(), 3 * channels}, 2), /*roundings=*/2);  // b x, and the result
  };
  for (std::int64_t taps = 1; taps <= 8; ++taps) check(37, taps, at::kFloat);
  // One channel, and several blocks of channels with and without a rest.
  for (const std::int64_t channels : {1, 64, 1024, 1041}) check(channels, 3, at::kBFloat16);
}

TEST_CASE("the gated convolution's tolerance notices gates that are swapped, other weights and borders") {
  const at::Tensor projected = leaf({kEnds.back(), 18}, 3).detach(),
                   weight = convolution_weight(6, 3).to(at::kDouble);
  const auto of = [&](const at::Tensor& in, const at::Tensor& w, const std::vector<std::int32_t>& ends) {
    return reference::gated_conv(in, w, sequences_to(ends));
  };
  const at::Tensor right = of(projected, weight, kEnds);
  const auto parts = projected.chunk(3, 1);
  CHECK(relative_distance(of(at::cat({parts[1], parts[0], parts[2]}, 1), weight, kEnds), right) > 0.1);
  CHECK(relative_distance(of(at::cat({parts[0], parts[2], parts[1]}, 1), weight, kEnds), right) > 0.1);
  CHECK(relative_distance(of(projected, weight.flip(1), kEnds), right) > 0.1);
  std::vector<std::int32_t> merged = kEnds;
  merged.erase(merged.begin() + 2);
  CHECK(relative_distance(of(projected, weight, merged), right) > 0.02);
}

TEST_CASE("a gated convolution that goes on behind its first rows, one by one, gives what it gives at once") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const std::int64_t taps : {1, 2, 3, 8}) {
      CAPTURE(c10::toString(dtype), taps);
      const std::int64_t channels = 21, length = 9;
      const at::Tensor all = drawn({2, length, 3 * channels}, 4, dtype),
                       weight = convolution_weight(channels, taps);
      const auto parts = all.chunk(3, 2);
      const at::Tensor u = parts[0] * parts[2];  // rounded
      const at::Tensor seen = at::cat({at::zeros({2, taps - 1, channels}, u.options()), u}, 1);
      const at::Tensor whole =
          gated_conv(all.flatten(0, 1), weight, sequences_to({9, 18})).view({2, length, channels});
      for (std::int64_t t = 0; t < length; ++t) {
        const at::Tensor one = gated_conv(all.select(1, t).contiguous(), weight, sequences_to({1, 2}),
                                          seen.narrow(1, t, taps - 1));
        CHECK(relative_distance(one, whole.select(1, t)) < (dtype == at::kDouble ? 1e-15 : 1e-30));
      }
    }
  }
}

TEST_CASE("a sequence's gated convolution doesn't depend on threads, nor on what it is packed with") {
  const std::int64_t channels = 530;
  const int threads = at::get_num_threads();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor projected = drawn({kEnds.back(), 3 * channels}, 5, dtype),
                     dy = drawn({kEnds.back(), channels}, 6, dtype);
    for (const std::int64_t taps : {2, 3, 7}) {
      CAPTURE(c10::toString(dtype), taps);
      const at::Tensor weight = convolution_weight(channels, taps);
      at::set_num_threads(1);
      const at::Tensor y = gated_conv(projected, weight, sequences_to(kEnds));
      const at::Tensor gradient = gated_conv_backward(dy, projected, weight, sequences_to(kEnds));
      for (const int other : {2, 3, 5}) {
        at::set_num_threads(other);
        CHECK(at::equal(gated_conv(projected, weight, sequences_to(kEnds)), y));
        CHECK(at::equal(gated_conv_backward(dy, projected, weight, sequences_to(kEnds)), gradient));
      }
      std::int32_t begin = 0;
      for (const std::int32_t end : kEnds) {
        const at::Tensor alone = projected.slice(0, begin, end);
        const Sequences one = sequences_to({end - begin});
        CHECK(at::equal(gated_conv(alone, weight, one), y.slice(0, begin, end)));
        CHECK(at::equal(gated_conv_backward(dy.slice(0, begin, end), alone, weight, one),
                        gradient.slice(0, begin, end)));
        begin = end;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("the gated convolution's kernels read nothing that wasn't written, and make only results") {
  {
    const PoisonedMemory poisoned;
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor projected = drawn({kEnds.back(), 3 * 43}, 7, dtype),
                       weight = convolution_weight(43, 4);
      const at::Tensor y = gated_conv(projected, weight, sequences_to(kEnds));
      CHECK(y.isfinite().all().item<bool>());
      CHECK(gated_conv_backward(y, projected, weight, sequences_to(kEnds)).isfinite().all().item<bool>());
    }
  }
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor projected = at::empty({96, 3 * 512}, options), weight = at::empty({512, 3}, options);
    Sequences sequences = sequences_to({96});
    sequences.cu_seqlens_device = sequences.cu_seqlens_device.to(at::kMeta);
    const DryRun run({.device = device});
    const at::Tensor y = gated_conv(projected, weight, sequences);
    const at::Tensor gradient = gated_conv_backward(y, projected, weight, sequences);
    // On a CPU the weight is copied, by taps and in fp32; less than half as much on the way.
    const std::int64_t results = 4 * 96 * 512 * 2, of_weight = device == at::kCPU ? 512 * 3 * 4 : 0;
    CHECK(run.peak().total() >= results + of_weight);
    CHECK(run.peak().total() <= results + 2 * of_weight);
  }
}

TEST_CASE("the gated convolution names what doesn't fit, and takes no rows") {
  const at::Tensor projected = at::zeros({6, 12}), weight = at::zeros({4, 3});
  const Sequences sequences = sequences_to({2, 6});
  const auto forward = [&](const at::Tensor& in, const at::Tensor& w, const Sequences& s,
                           const at::Tensor& before = {}) {
    return error_text([&] { gated_conv(in, w, s, before); });
  };
  CHECK_THAT(forward(at::zeros({12, 6}).t(), weight, sequences), Contains("a dense floating matrix"));
  CHECK_THAT(forward(at::zeros({6, 12}, at::kLong), weight, sequences), Contains("a dense floating matrix"));
  CHECK_THAT(forward(projected, at::zeros({5, 3}), sequences), Contains("3 times the weight's channels"));
  CHECK_THAT(forward(projected, at::zeros({4, 9}), sequences), Contains("at most 8 taps"));
  CHECK_THAT(forward(projected, weight, sequences_to({2, 5})), Contains("sequences that end with the rows"));
  for (const at::Tensor& before : {at::zeros({2, 3, 4}), at::zeros({3, 2, 4}), at::zeros({2, 2, 5})})
    CHECK_THAT(forward(projected, weight, sequences, before), Contains("rows before each sequence"));
  CHECK_THAT(error_text([&] { gated_conv_backward(at::zeros({6, 5}), projected, weight, sequences); }),
             Contains("a dense gradient of the result"));
  const at::Tensor none = at::zeros({0, 12});
  CHECK(gated_conv(none, weight, sequences_to({0, 0})).sizes() == at::IntArrayRef({0, 4}));
  CHECK(gated_conv_backward(at::zeros({0, 4}), none, weight, sequences_to({0})).sizes() == none.sizes());
}
