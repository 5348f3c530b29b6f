#include "ops/causal_conv/causal_conv.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

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

at::Tensor gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                    const Sequences& sequences, const at::Tensor& bias = {}) {
  const at::Tensor dx = at::empty_like(x);
  causal_conv_backward(dy, x, weight, sequences, dx, bias);
  return dx;
}

}  // namespace

TEST_CASE("a causal convolution weighs a row and those before it in its sequence: numbers by hand") {
  // Taps 1, 2, 3 with the last on the row itself; the second channel's are ten times as large.
  const at::Tensor weight = at::tensor({1.0, 2.0, 3.0, 10.0, 20.0, 30.0}).view({2, 3});
  const at::Tensor x = at::tensor({1.0, 0.1, 2.0, 0.2, -4.0, 0.4, 0.5, 0.5}).view({4, 2});
  const Sequences sequences = sequences_to({3, 3, 4});
  const at::Tensor sums = at::tensor({3.0, 3.0, 8.0, 8.0, -7.0, 17.0, 1.5, 15.0}).view({4, 2});
  const at::Tensor before =
      at::tensor({1.0, 0.0, -2.0, 0.1, 9.0, 9.0, 9.0, 9.0, 0.0, 0.1, 1.0, 0.0}).view({3, 2, 2});
  const at::Tensor after = at::tensor({0.0, 5.0, 6.0, 9.0, -7.0, 17.0, 3.5, 16.0}).view({4, 2});
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const double tolerance = dtype == at::kDouble ? 1e-15 : 3e-7;
    const at::Tensor in = x.to(dtype), w = weight.to(dtype);
    CHECK(relative_distance(causal_conv(in, w, sequences), at::silu(sums)) < tolerance);
    CHECK(relative_distance(causal_conv(in, w, sequences, before.to(dtype)), at::silu(after)) < tolerance);
    const at::Tensor bias = at::tensor({-1.0, 2.5}).to(dtype);
    CHECK(relative_distance(causal_conv(in, w, sequences, {}, bias), at::silu(sums + bias)) < tolerance);
    CHECK(relative_distance(causal_conv(in, w, sequences, before.to(dtype), bias), at::silu(after + bias)) <
          tolerance);
  }
}

TEST_CASE("the causal convolution's reference has the gradients of finite differences") {
  for (const std::int64_t taps : {1, 3, 4}) {
    const at::Tensor weight = convolution_weight(3, taps).to(at::kDouble);
    for (const at::Tensor& bias : {at::Tensor(), convolution_bias(3).to(at::kDouble)}) {
      CHECK(gradcheck(
                [&](const auto& in) {
                  return reference::causal_conv(in[0], weight, sequences_to({5, 5, 6, 9}), {}, bias);
                },
                {leaf({9, 3}, 1)})
                .worst < 1e-7);
    }
  }
}

TEST_CASE("the causal convolution agrees with its reference in every dtype, forward and backward") {
  const Sequences sequences = sequences_to(kEnds);
  const auto check = [&](std::int64_t channels, std::int64_t taps, at::ScalarType weights) {
    const at::Tensor weight = convolution_weight(channels, taps).to(weights),
                     x = leaf({kEnds.back(), channels}, 2);
    for (const at::Tensor& bias : {at::Tensor(), convolution_bias(channels).to(weights)}) {
      CAPTURE(channels, taps, c10::toString(weights), bias.defined());
      check_all_dtypes(
          [&](const auto& rows) { return as_autograd(rows, convolution_pair(weight, sequences, bias)); },
          [&](const auto& rows) {
            return reference::causal_conv(rows, weight.to(at::kDouble), sequences, {}, bias);
          },
          x);
    }
  };
  for (std::int64_t taps = 1; taps <= 8; ++taps) check(37, taps, at::kFloat);
  // One channel, and several blocks of channels with and without a rest.
  for (const std::int64_t channels : {1, 64, 1024, 1041}) check(channels, 4, at::kBFloat16);
}

TEST_CASE("the causal convolution's tolerance notices other weights, borders and biases") {
  const at::Tensor x = leaf({kEnds.back(), 6}, 3).detach(), weight = convolution_weight(6, 4).to(at::kDouble);
  const at::Tensor right = reference::causal_conv(x, weight, sequences_to(kEnds));
  CHECK(relative_distance(reference::causal_conv(x, weight.flip(1), sequences_to(kEnds)), right) > 0.1);
  CHECK(relative_distance(reference::causal_conv(x, weight.roll(1, 0), sequences_to(kEnds)), right) > 0.1);
  std::vector<std::int32_t> merged = kEnds;
  merged.erase(merged.begin() + 2);
  CHECK(relative_distance(reference::causal_conv(x, weight, sequences_to(merged)), right) > 0.02);
  const at::Tensor unweighted = weight.slice(1, 0, 3);
  CHECK(relative_distance(reference::causal_conv(x, unweighted, sequences_to(kEnds)), right) > 0.1);
  const at::Tensor bias = convolution_bias(6).to(at::kDouble);
  const auto biased = [&](const at::Tensor& b) {
    const at::Tensor y = reference::causal_conv(x, weight, sequences_to(kEnds), {}, b);
    const ReferenceOps references;
    return std::pair{y, gradient(at::ones_like(x), x, weight, sequences_to(kEnds), b)};
  };
  const auto expected = biased(bias);
  for (const at::Tensor& wrong : {at::Tensor(), bias.roll(1), -bias}) {
    CHECK(relative_distance(biased(wrong).first, expected.first) > 0.1);
    CHECK(relative_distance(biased(wrong).second, expected.second) > 0.1);
  }
}

TEST_CASE("a convolution's bias of zeros changes no bit, and it may be a view") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t taps : {1, 4, 7}) {
      const at::Tensor x = drawn({kEnds.back(), 530}, 10, dtype), dy = drawn({kEnds.back(), 530}, 11, dtype);
      const at::Tensor weight = convolution_weight(530, taps), zeros = at::zeros({530});
      const Sequences sequences = sequences_to(kEnds);
      CHECK(at::equal(causal_conv(x, weight, sequences, {}, zeros), causal_conv(x, weight, sequences)));
      CHECK(at::equal(gradient(dy, x, weight, sequences, zeros), gradient(dy, x, weight, sequences)));
      const at::Tensor bias = convolution_bias(530), view = at::stack({bias, zeros}, 1).select(1, 0);
      CHECK(at::equal(causal_conv(x, weight, sequences, {}, view),
                      causal_conv(x, weight, sequences, {}, bias)));
    }
  }
}

TEST_CASE("a convolution that goes on behind its first rows, one by one, gives what it gives at once") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const std::int64_t taps : {1, 2, 4, 8}) {
      CAPTURE(c10::toString(dtype), taps);
      // Three sequences of 9 rows; the first rows of each at once: none, less than the taps, more.
      const std::int64_t channels = 21, length = 9, firsts[] = {0, 2, 8};
      const at::Tensor all = drawn({3, length, channels}, 4, dtype),
                       weight = convolution_weight(channels, taps);
      const at::Tensor bias = taps == 2 ? at::Tensor() : convolution_bias(channels);
      const at::Tensor whole =
          causal_conv(all.flatten(0, 1), weight, sequences_to({9, 18, 27}), {}, bias).view_as(all);
      for (const std::int64_t first : firsts) {
        at::Tensor before = at::zeros({3, taps - 1, channels}, all.options());
        const auto ends = static_cast<std::int32_t>(first);
        std::vector<at::Tensor> parts;
        parts.push_back(causal_conv(all.narrow(1, 0, first).flatten(0, 1), weight,
                                    sequences_to({ends, 2 * ends, 3 * ends}), before, bias)
                            .view({3, first, channels}));
        for (std::int64_t t = first; t < length; ++t) {
          const at::Tensor seen =
              at::cat({at::zeros({3, taps - 1, channels}, all.options()), all.narrow(1, 0, t)}, 1);
          before = seen.narrow(1, t, taps - 1);  // a view
          parts.push_back(
              causal_conv(all.select(1, t), weight, sequences_to({1, 2, 3}), before, bias).unsqueeze(1));
        }
        const at::Tensor found = at::cat(parts, 1);
        if (dtype == at::kDouble) {
          CHECK(relative_distance(found, whole) < 1e-15);
        } else {
          CHECK(at::equal(found, whole));
        }
      }
    }
  }
}

TEST_CASE("a sequence's convolution doesn't depend on threads, nor on what it is packed with") {
  const std::int64_t channels = 530;
  const int threads = at::get_num_threads();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = drawn({kEnds.back(), channels}, 5, dtype),
                     dy = drawn({kEnds.back(), channels}, 6, dtype);
    for (const std::int64_t taps : {2, 4, 7}) {
      CAPTURE(c10::toString(dtype), taps);
      const at::Tensor weight = convolution_weight(channels, taps);
      const at::Tensor bias = taps == 7 ? at::Tensor() : convolution_bias(channels);
      at::set_num_threads(1);
      const at::Tensor y = causal_conv(x, weight, sequences_to(kEnds), {}, bias);
      const at::Tensor dx = gradient(dy, x, weight, sequences_to(kEnds), bias);
      for (const int other : {2, 3, 5}) {
        at::set_num_threads(other);
        CHECK(at::equal(causal_conv(x, weight, sequences_to(kEnds), {}, bias), y));
        CHECK(at::equal(gradient(dy, x, weight, sequences_to(kEnds), bias), dx));
      }
      std::int32_t begin = 0;
      for (const std::int32_t end : kEnds) {
        const at::Tensor alone = x.slice(0, begin, end);
        const Sequences one = sequences_to({end - begin});
        CHECK(at::equal(causal_conv(alone, weight, one, {}, bias), y.slice(0, begin, end)));
        CHECK(
            at::equal(gradient(dy.slice(0, begin, end), alone, weight, one, bias), dx.slice(0, begin, end)));
        begin = end;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("the causal convolution's kernels read nothing that wasn't written") {
  const PoisonedMemory poisoned;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = drawn({kEnds.back(), 43}, 7, dtype), weight = convolution_weight(43, 4);
    for (const at::Tensor& bias : {at::Tensor(), convolution_bias(43)}) {
      CHECK(causal_conv(x, weight, sequences_to(kEnds), {}, bias).isfinite().all().item<bool>());
      CHECK(gradient(x, x, weight, sequences_to(kEnds), bias).isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("the causal convolution's kernels make no tensor of rows but the result, on a CPU and on a GPU") {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({96, 1024}, options).narrow(1, 0, 512);
    const at::Tensor weight = at::empty({512, 4}, options), bias = at::empty({512}, options);
    Sequences sequences = sequences_to({96});
    sequences.cu_seqlens_device = sequences.cu_seqlens_device.to(at::kMeta);
    const DryRun run({.device = device});
    const at::Tensor y = causal_conv(x, weight, sequences, {}, bias);
    causal_conv_backward(y, x, weight, sequences, x, bias);
    // On a CPU weight and bias are copied, by taps and in fp32; less than half as much on the way.
    const std::int64_t of_weight = device == at::kCPU ? 512 * (4 + 1) * 4 : 0;
    CHECK(run.peak().total() >= 96 * 512 * 2 + of_weight);
    CHECK(run.peak().total() <= 96 * 512 * 2 + 2 * of_weight);
    const ReferenceOps references;
    (void)causal_conv(x, weight, sequences);
    CHECK(run.peak().total() > 3 * 96 * 512 * 2);
  }
}

TEST_CASE(
    "no rows have a convolution, and a gradient whose elements aren't dense goes through the reference") {
  const at::Tensor weight = convolution_weight(12, 4), none = at::zeros({0, 12});
  for (const Sequences& sequences : {sequences_to({}), sequences_to({0, 0})}) {
    CHECK(causal_conv(none, weight, sequences).sizes() == at::IntArrayRef({0, 12}));
    CHECK_NOTHROW(gradient(none, none, weight, sequences));
  }
  const at::Tensor x = drawn({9, 12}, 8, at::kFloat), dy = drawn({9, 12}, 9, at::kFloat);
  const at::Tensor columns = at::empty({12, 9}).t();
  causal_conv_backward(dy, x, weight, sequences_to({4, 9}), columns);
  CHECK(relative_distance(columns, gradient(dy, x, weight, sequences_to({4, 9}))) < 1e-6);
  const at::Tensor bias = convolution_bias(12);
  causal_conv_backward(dy, x, weight, sequences_to({4, 9}), columns, bias);
  CHECK(relative_distance(columns, gradient(dy, x, weight, sequences_to({4, 9}), bias)) < 1e-6);
}

TEST_CASE("the causal convolution names what doesn't fit") {
  const at::Tensor x = at::zeros({6, 4}), weight = at::zeros({4, 3});
  const Sequences sequences = sequences_to({2, 6});
  const auto forward = [&](const at::Tensor& in, const at::Tensor& w, const Sequences& s,
                           const at::Tensor& before = {}) {
    return error_text([&] { causal_conv(in, w, s, before); });
  };
  CHECK_THAT(forward(at::zeros({4, 6}).t(), weight, sequences), Contains("with dense rows"));
  CHECK_THAT(forward(at::zeros({6, 4}, at::kLong), weight, sequences), Contains("a floating matrix"));
  CHECK_THAT(forward(x, at::zeros({5, 3}), sequences), Contains("a weight [channels, taps]"));
  CHECK_THAT(forward(x, at::zeros({4, 9}), sequences), Contains("at most 8 taps"));
  CHECK_THAT(forward(x, at::zeros({4, 0}), sequences), Contains("a weight [channels, taps]"));
  CHECK_THAT(forward(x, weight, sequences_to({2, 5})), Contains("sequences that end with the rows"));
  CHECK_THAT(forward(x, weight, {}), Contains("sequences that end with the rows"));
  for (const at::Tensor& before :
       {at::zeros({2, 3, 4}), at::zeros({3, 2, 4}), at::zeros({2, 2, 5}), at::zeros({2, 2, 4}, at::kDouble)})
    CHECK_THAT(forward(x, weight, sequences, before), Contains("rows before each sequence"));
  for (const at::Tensor& bias : {at::zeros({3}), at::zeros({4, 1}), at::zeros({})}) {
    CHECK_THAT(error_text([&] { causal_conv(x, weight, sequences, {}, bias); }),
               Contains("[causal_conv] expected a bias [channels]"));
    CHECK_THAT(error_text([&] { causal_conv_backward(x, x, weight, sequences, x, bias); }),
               Contains("[causal_conv] expected a bias [channels]"));
  }
  const auto backward = [&](const at::Tensor& dy, const at::Tensor& dx) {
    return error_text([&] { causal_conv_backward(dy, x, weight, sequences, dx); });
  };
  CHECK_THAT(backward(at::zeros({4, 6}).t(), x), Contains("a dense gradient of the result"));
  CHECK_THAT(backward(x.to(at::kDouble), x), Contains("a dense gradient of the result, of its type"));
  CHECK_THAT(backward(x, at::zeros({6, 5})), Contains("a matrix for the input's gradient"));
  CHECK_THAT(backward(x, x.to(at::kDouble)), Contains("a matrix for the input's gradient"));
}
