// Our CUDA kernels on the fake card, against fp64 references: values, gradients, and that nothing else ran.
#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/activation/activation.h"
#include "ops/linear_cross_entropy/softmax.h"
#include "ops/norm/norm.h"
#include "ops/qk_norm_cases.h"
#include "ops/rotary/rotary.h"
#include "support/head_gradients.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

NormParameters parameters(std::int64_t width, bool bias, at::ScalarType dtype) {
  const auto values = [&](std::uint64_t seed) { return random({width}, seed).to(at::kBFloat16).to(dtype); };
  return {values(1), bias ? values(2) : at::Tensor()};
}

NormParameters moved(const NormParameters& p, const at::TensorOptions& options) {
  return {p.weight.to(options), p.bias.defined() ? p.bias.to(options) : p.bias};
}

const NormOptions kForms[] = {{NormKind::kRms, 1e-5, true}, {NormKind::kLayer, 1e-5, false}};

void check_norm(std::int64_t rows, std::int64_t width, const NormOptions& options, at::ScalarType weights) {
  const auto p = parameters(width, options.kind == NormKind::kLayer, weights);
  const auto device_parameters = moved(p, kCard);
  CAPTURE(rows, width, c10::toString(weights));
  check_kernel_dtypes(
      "norm_cuda.cu",
      [=](const at::Tensor& x, Backward& backward) {
        NormStatistics statistics;
        auto y = norm(x, device_parameters, options, &statistics);
        CHECK(statistics.rstd.defined());
        backward = [=](const at::Tensor& dy) {
          return norm_backward(dy, {}, x, device_parameters, options, statistics);
        };
        return y;
      },
      [=](const at::Tensor& x) { return reference::norm(x, moved(p, at::kDouble), options); },
      random({rows, width}, 3));
}

// Rows whose starts aren't multiples of 16 bytes: one element behind the beginning of their memory.
at::Tensor shifted(const at::Tensor& dense) {
  const at::Tensor memory = at::empty({dense.numel() + 1}, dense.options());
  return memory.narrow(0, 1, dense.numel()).view(dense.sizes()).copy_(dense);
}

}  // namespace

TEST_CASE(
    "norms on a card: narrow rows, odd widths, one row, several warps, and rows beyond a block's reach") {
  for (const auto& options : kForms) {
    for (const std::int64_t width : {5, 64, 515, 2048}) check_norm(33, width, options, at::kBFloat16);
    check_norm(1, 96, options, at::kFloat);
    check_norm(9, 128, options, at::kHalf);
    // 512 threads of one access of 16 bytes, of four, and beyond; of single elements beyond.
    for (const std::int64_t width : {4096, 5120, 16384, 24576, 5003})
      check_norm(2, width, options, at::kBFloat16);
  }
}

TEST_CASE("norms on a card take no rows, and rows that begin anywhere") {
  const NormParameters p = moved(parameters(64, false, at::kBFloat16), kCard);
  NormStatistics statistics;
  CHECK(norm(at::empty({0, 64}, at::TensorOptions(kCard)), p, {}, &statistics).sizes() ==
        at::IntArrayRef({0, 64}));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random({7, 64}, 4).to(dtype).to(kCard), dy = random({7, 64}, 5).to(dtype).to(kCard);
    const at::Tensor y = norm(x, p, {}, &statistics), from = shifted(x);
    const at::Tensor dx = norm_backward(dy, {}, x, p, {}, statistics);
    NormStatistics other;
    // The same sums of one element a thread instead of several: another order.
    CHECK(relative_distance(norm(from, p, {}, &other).cpu(), y.cpu()) < 3e-3);
    CHECK(relative_distance(norm_backward(shifted(dy), {}, from, p, {}, other).cpu(), dx.cpu()) < 3e-3);
    CHECK(relative_distance(other.rstd.cpu(), statistics.rstd.cpu()) < 1e-6);
  }
}

TEST_CASE("add_norm on a card norms the rounded sum, and backward adds what comes past the norm") {
  for (const auto& tolerance : kTolerances) {
    if (tolerance.dtype == at::kDouble) continue;
    for (const auto& options : kForms) {
      for (const std::int64_t width : {40, 3072, 4100, 5120, 20480}) {
        CAPTURE(c10::toString(tolerance.dtype), width);
        const auto p = parameters(width, true, at::kBFloat16), q = moved(p, kCard);
        const auto made = [&](std::uint64_t seed) { return random({3, width}, seed).to(tolerance.dtype); };
        const at::Tensor residual = made(6), delta = made(7), dy = made(8), past = made(9);
        at::Tensor sum;
        NormStatistics statistics;
        const auto y = add_norm(residual.to(kCard), delta.to(kCard), q, options, sum, &statistics);
        CHECK(at::equal(sum.cpu(), residual + delta));
        auto exact = (residual + delta).to(at::kDouble).requires_grad_(true);
        const auto expected = reference::norm(exact, moved(p, at::kDouble), options);
        CHECK(relative_distance(y.cpu(), expected) < tolerance.forward);
        at::Tensor again;
        const auto dx = norm_backward(dy.to(kCard), past.to(kCard), sum, q, options, statistics, &again);
        CHECK(at::equal(again.cpu(), y.cpu()));
        const auto expected_dx =
            torch::autograd::grad({expected}, {exact}, {dy.to(at::kDouble)})[0] + past.to(at::kDouble);
        CHECK(relative_distance(dx.cpu(), expected_dx) < tolerance.backward);
      }
    }
  }
}

TEST_CASE("heads of packed rows are normed on a card as on the CPU, and their gradient in place") {
  // 3 heads at a column of wider rows: aligned to 16 bytes and not.
  for (const auto [head, column, width] : {std::array<std::int64_t, 3>{8, 8, 48}, {5, 4, 40}}) {
    const auto heads_of = [=, h = head, c = column](const at::Tensor& rows) {
      return rows.narrow(1, c, 3 * h).unflatten(1, {-1, h});
    };
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto p = parameters(head, false, at::kBFloat16), q = moved(p, kCard);
      const at::Tensor packed = random({9, width}, 10).to(dtype), gradient = random({9, width}, 11).to(dtype);
      const auto run = [&](const at::Device& device, const NormParameters& scale) {
        at::Tensor out = at::zeros_like(packed).to(device), d = gradient.clone().to(device);
        at::Tensor y = heads_of(out), dy = heads_of(d);
        const at::Tensor x = heads_of(packed.to(device));
        NormStatistics statistics;
        norm_out(y, x, scale, {}, &statistics);
        norm_backward_(dy, x, scale, {}, statistics);
        return std::pair{out.cpu(), d.cpu()};
      };
      const auto expected = run(at::kCPU, p), got = run(kCard, q);
      const double tolerance = dtype == at::kFloat ? 1e-6 : 6e-3;
      CHECK(relative_distance(got.first, expected.first) < tolerance);
      CHECK(relative_distance(got.second, expected.second) < tolerance);
      // What lies beside the heads stays.
      CHECK(at::equal(got.second.narrow(1, 0, column), gradient.narrow(1, 0, column)));
      CHECK(at::equal(got.first.slice(1, column + 3 * head), expected.first.slice(1, column + 3 * head)));
    }
  }
}

TEST_CASE("activations on a card agree with their references, in widths of whole accesses and others") {
  for (const auto kind :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kClampedSwiglu}) {
    for (const std::int64_t width : {7, 64, 67, 2056}) {
      CAPTURE(static_cast<int>(kind), width);
      for (const double size : {1.0, 5.0, 30.0}) {
        check_kernel_dtypes(
            "activation_cuda.cu",
            [=](const at::Tensor& x, Backward& backward) {
              backward = [=](const at::Tensor& dy) {
                auto dx = x.clone();
                gated_activation_backward_(dy, dx, kind);
                return dx;
              };
              return gated_activation(x, kind);
            },
            [=](const at::Tensor& x) { return reference::gated_activation(x, kind); },
            random({11, 2 * width}, 12) * size);
        if (kind == Activation::kClampedSwiglu) continue;
        check_kernel_dtypes(
            "activation_cuda.cu",
            [=](const at::Tensor& x, Backward& backward) {
              backward = [=](const at::Tensor& dy) {
                auto dx = x.clone();
                activation_backward_(dy, dx, kind);
                return dx;
              };
              return activation(x, kind);
            },
            [=](const at::Tensor& x) { return reference::activation(x, kind); },
            random({11, width}, 13) * size);
      }
    }
  }
}

TEST_CASE("activations on a card take no rows, and rows that begin anywhere") {
  const at::Tensor none = at::empty({0, 16}, at::TensorOptions(kCard));
  CHECK(gated_activation(none, Activation::kSilu).sizes() == at::IntArrayRef({0, 8}));
  CHECK(activation(none, Activation::kSilu).sizes() == none.sizes());
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const at::Tensor x = random({5, 32}, 14).to(dtype).to(kCard),
                     dy = random({5, 16}, 15).to(dtype).to(kCard);
    CHECK(at::equal(gated_activation(shifted(x), Activation::kSilu).cpu(),
                    gated_activation(x, Activation::kSilu).cpu()));
    CHECK(at::equal(activation(shifted(x), Activation::kGelu).cpu(), activation(x, Activation::kGelu).cpu()));
    at::Tensor dx = x.clone(), other = shifted(x);
    gated_activation_backward_(dy, dx, Activation::kSilu);
    gated_activation_backward_(shifted(dy), other, Activation::kSilu);
    CHECK(at::equal(other.cpu(), dx.cpu()));
  }
}

TEST_CASE("the clamped SwiGLU on a card has torch's gradients at its limits and beyond them") {
  const at::Tensor values = at::tensor({-30.0, -7.03125, -7.0, -6.96875, 0.5, 6.96875, 7.0, 7.03125, 30.0});
  const auto pairs = at::meshgrid({values, values}, "ij");
  const at::Tensor x = at::cat({pairs[0].reshape({1, -1}), pairs[1].reshape({1, -1})}, 1);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor wide = x.to(at::kDouble).requires_grad_(true);
    const at::Tensor y = reference::gated_activation(wide, Activation::kClampedSwiglu);
    const at::Tensor expected = torch::autograd::grad({y}, {wide}, {at::ones_like(y)})[0];
    at::Tensor found = x.to(dtype).to(kCard), again;
    gated_activation_backward_(at::ones(y.sizes(), found.options()), found, Activation::kClampedSwiglu,
                               &again);
    CHECK(at::allclose(found.cpu().to(at::kDouble), expected, 8e-3, 1e-6));
    CHECK(found.cpu().masked_select(expected == 0).count_nonzero().item<std::int64_t>() == 0);
    CHECK(at::allclose(again.cpu().to(at::kDouble), y.detach(), 8e-3, 1e-6));
    CHECK(at::equal(again.cpu(), gated_activation(x.to(dtype).to(kCard), Activation::kClampedSwiglu).cpu()));
  }
}

TEST_CASE("the activations' backward on a card gives forward's result again, to the bit") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t width : {7, 64, 67}) {
      CAPTURE(c10::toString(dtype), width);
      const at::Tensor gate_up = random({5, 2 * width}, 16).to(dtype).to(kCard),
                       dy = random({5, width}, 17).to(dtype).to(kCard);
      at::Tensor expected = gate_up.clone(), got = gate_up.clone(), again;
      gated_activation_backward_(dy, expected, Activation::kSilu);
      gated_activation_backward_(dy, got, Activation::kSilu, &again);
      CHECK(at::equal(got.cpu(), expected.cpu()));
      CHECK(at::equal(again.cpu(), gated_activation(gate_up, Activation::kSilu).cpu()));
      expected = dy.clone(), got = dy.clone();
      again.reset();
      activation_backward_(dy, expected, Activation::kGelu);
      activation_backward_(dy, got, Activation::kGelu, &again);
      CHECK(at::equal(got.cpu(), expected.cpu()));
      CHECK(at::equal(again.cpu(), activation(dy, Activation::kGelu).cpu()));
    }
  }
}

TEST_CASE(
    "rotary on a card agrees with its reference: whole and partial heads, and rows that begin anywhere") {
  // Accesses of several elements and of one; parts of heads that are whole accesses, and not.
  for (const auto& layout :
       {HeadLayout{4, 2, 16}, HeadLayout{3, 1, 10}, HeadLayout{2, 1, 32}, HeadLayout{4, 2, 16, true},
        HeadLayout{3, 1, 10, true}, HeadLayout{2, 1, 32, true}}) {
    for (const std::int64_t half : {layout.head_dim / 2, std::int64_t{3}, layout.head_dim / 4}) {
      CAPTURE(layout.head_dim, layout.interleaved, half);
      const at::Tensor cos = random({19, half}, 16).to(at::kFloat),
                       sin = random({19, half}, 17).to(at::kFloat);
      const at::Tensor c = cos.to(kCard), s = sin.to(kCard);
      const auto rotated = [=](bool move) {
        return [=](const at::Tensor& x, Backward& backward) {
          backward = [=](const at::Tensor& dy) {
            auto dx = move ? shifted(dy) : dy.clone();
            auto of_parts = rotate_backward(apart(dx, layout), c, s, layout);
            // Rows that begin anywhere, further apart than they are wide.
            HeadGradients views = HeadGradients::of(dx, layout);
            views.packed.reset();
            CHECK(at::equal(of_parts.cpu(), rotate_backward(views, c, s, layout).cpu()));
            CHECK(at::equal(of_parts.cpu(),
                            rotate_backward(HeadGradients::of(dx, layout), c, s, layout).cpu()));
            return of_parts;
          };
          auto y = move ? shifted(x) : x.clone();
          rotate(y, c, s, layout);
          return y;
        };
      };
      for (const bool move : {false, true}) {
        check_kernel_dtypes(
            "rotary_cuda.cu", rotated(move),
            [=](const at::Tensor& x) { return reference::rotary(x, cos, sin, layout); },
            random({19, layout.width()}, 18));
      }
    }
  }
  at::Tensor none = at::empty({0, 128}, at::TensorOptions(kCard));
  const at::Tensor no_angles = at::empty({0, 8}, at::TensorOptions(kCard));
  CHECK_NOTHROW(rotate(none, no_angles, no_angles, HeadLayout{4, 2, 16}));
}

namespace {

QkNorms moved(const QkNorms& norms) {
  return {moved(norms.q, kCard), moved(norms.k, kCard), norms.q_options, norms.k_options};
}

RotaryAngles moved(const RotaryAngles& angles) {
  return angles.cos.defined() ? RotaryAngles{angles.cos.to(kCard), angles.sin.to(kCard)} : angles;
}

}  // namespace

TEST_CASE("norms of queries and keys with rotary are one kernel on a card where their forms allow it") {
  for (const QkNormCase& form : kQkNormCases) {
    for (const auto& tolerance : kTolerances) {
      if (tolerance.dtype == at::kDouble) continue;
      // Weights of the rows' dtype, and fp32 ones beside rows of 16 bits.
      for (const auto weights : {tolerance.dtype, at::kFloat}) {
        CAPTURE(form.name, c10::toString(tolerance.dtype), c10::toString(weights));
        const Forward pair = norm_and_rotate_pair(form, moved(form.norms(weights)), moved(form.angles(19)));
        card::reset_report();
        const auto found =
            distance([&](const at::Tensor& in) { return on_card(in, pair); },
                     [&](const at::Tensor& x) { return form.reference(x); }, form.input(19), tolerance.dtype);
        // Both ways two roundings: behind the norm, and behind rotary.
        CHECK(found.forward < 2 * tolerance.forward);
        CHECK(found.backward < 2 * tolerance.backward);
        CHECK(card::report().kernels["qk_norm_cuda.cu"] == (form.one_kernel ? 4 : 0));
        CHECK(card::report().kernels.contains("norm_cuda.cu") != form.one_kernel);
        CHECK(card::report().hazards.empty());
      }
    }
  }
}

TEST_CASE("norms with rotary on a card take no rows, rows that begin anywhere, and heads of 512 in 16 bits") {
  const QkNormCase& form = kQkNormCases[0];
  const QkNorms norms = moved(form.norms(at::kFloat));
  const auto run = [&](const at::Tensor& x) {
    QkNormStatistics statistics;
    const RotaryAngles angles = moved(form.angles(x.size(0)));
    const at::Tensor y = norm_and_rotate(x, norms, angles, form.layout, &statistics);
    const at::Tensor dx =
        norm_and_rotate_backward(apart(x, form.layout), x, norms, angles, form.layout, statistics);
    return at::stack({y, dx}).cpu();
  };
  CHECK(run(at::empty({0, form.layout.width()}, at::TensorOptions(kCard))).numel() == 0);
  const at::Tensor x = form.input(5).detach().to(at::kFloat).to(kCard);
  CHECK(relative_distance(run(shifted(x)), run(x)) < 1e-6);

  const QkNormCase wide{.name = "heads of 512", .layout = {1, 1, 512}, .rotary_half = 256};
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    card::reset_report();
    const at::Tensor rows = wide.input(3).detach().to(dtype);
    const at::Tensor y =
        norm_and_rotate(rows.to(kCard), moved(wide.norms(dtype)), moved(wide.angles(3)), wide.layout);
    CHECK(relative_distance(y.cpu(), wide.reference(rows.to(at::kDouble))) < 4e-3);
    CHECK(card::report().kernels["qk_norm_cuda.cu"] == (dtype == at::kBFloat16 ? 1 : 0));
  }
}

namespace {

struct Softmax {
  at::Tensor nll, gradient;
};

Softmax softmax_of(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                   bool gradient = true) {
  at::Tensor overwritten = logits.clone();
  const at::Tensor nll =
      at::empty({labels.size(0)},
                logits.options().dtype(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  softmax_nll(overwritten, labels, options, gradient, 0.5, nll);
  return {nll.cpu(), overwritten.cpu()};
}

// fp64 on the CPU goes through the reference, whose numbers tests/ops/cross_entropy_test.cpp holds.
void check_softmax(std::int64_t width, double size, const CrossEntropyOptions& options) {
  const std::int64_t rows = 5;
  for (const auto& tolerance : kTolerances) {
    if (tolerance.dtype == at::kDouble) continue;
    CAPTURE(width, size, options.soft_cap, c10::toString(tolerance.dtype));
    const at::Tensor logits = (random({rows, width}, 20) * size).to(tolerance.dtype);
    // The first and the last columns among them.
    const at::Tensor labels = at::tensor({std::int64_t{0}, width - 1, width / 2, width / 3, width - 1});
    const Softmax exact = softmax_of(logits.to(at::kDouble), labels, options);
    card::reset_report();
    const Softmax got = softmax_of(logits.to(kCard), labels.to(kCard), options);
    CHECK(card::report().kernels["softmax_cuda.cu"] == 1);
    CHECK(relative_distance(got.nll, exact.nll) < 2e-6);  // fp32 sums, whatever the logits' dtype
    CHECK(relative_distance(got.gradient, exact.gradient) < tolerance.backward);
    const Softmax alone = softmax_of(logits.to(kCard), labels.to(kCard), options, /*gradient=*/false);
    CHECK(at::equal(alone.nll, got.nll));
    CHECK(card::report().hazards.empty());
  }
}

}  // namespace

TEST_CASE("softmax on a card agrees with its reference: rows that begin anywhere, scale and soft cap") {
  // Narrower than an access, odd (each row begins elsewhere), a block's reach, several of them.
  for (const std::int64_t width : {3, 64, 203, 4096, 10007}) {
    for (const double size : {1.0, 40.0}) {
      check_softmax(width, size, {});
      check_softmax(width, size, {.soft_cap = 30, .scale = 0.7});
    }
  }
  at::Tensor none = at::empty({0, 16}, at::TensorOptions(kCard));
  const at::Tensor no_labels = at::empty({0}, at::TensorOptions(kCard).dtype(at::kLong));
  CHECK_NOTHROW(softmax_nll(none, no_labels, {}, true, 1, at::empty({0}, at::TensorOptions(kCard))));
}

TEST_CASE("a label out of range makes its row's loss and gradient NaN on a card, and no other row's") {
  const at::Tensor logits = random({3, 50}, 21).to(at::kFloat);
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{50}}) {
    const Softmax got =
        softmax_of(logits.to(kCard), at::tensor({std::int64_t{4}, wrong, std::int64_t{49}}).to(kCard), {});
    const at::Tensor second = at::tensor({0, 1, 0}).to(at::kBool);
    CHECK(at::equal(got.nll.isnan(), second));
    CHECK(at::equal(got.gradient.isnan().all(1), second));
    CHECK(at::equal(got.gradient.isnan().any(1), second));
  }
  at::Tensor infinite = logits.clone();
  infinite.select(0, 0).fill_(-INFINITY);
  infinite[0][7] = 3;
  const Softmax got = softmax_of(
      infinite.to(kCard), at::tensor({std::int64_t{7}, std::int64_t{1}, std::int64_t{2}}).to(kCard), {});
  CHECK(got.nll[0].item<float>() == 0);
  CHECK(got.gradient.isfinite().all().item<bool>());
}

TEST_CASE("fp64 on a card goes through the references") {
  card::reset_report();
  const at::Tensor x = random({4, 16}, 19).to(kCard);
  const NormParameters p = moved(parameters(16, false, at::kDouble), kCard);
  NormStatistics statistics;
  (void)norm(x, p, {}, &statistics);
  (void)gated_activation(x, Activation::kSilu);
  CHECK_FALSE(statistics.rstd.defined());
  CHECK(card::report().kernels.empty());
}
