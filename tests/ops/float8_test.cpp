// fp8 weights against ATen's own e4m3 numbers.
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <limits>

#include "ops/lora/dora.h"
#include "ops/quantized/float8.h"
#include "ops/quantized/float8_matrix.h"
#include "ops/quantized/float8_product.h"
#include "ops/quantized/quantize.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using Catch::Matchers::Contains;
using precision::Float8;

namespace {

at::Tensor all_codes() {
  at::Tensor codes = at::arange(256).to(at::kByte);
  return codes.masked_select((codes & kFloat8Nan) != kFloat8Nan);
}

at::Tensor numbers_of(const at::Tensor& codes) { return codes.view(at::kFloat8_e4m3fn).to(at::kFloat); }

// A matrix with random codes and scales.
struct Stored {
  Stored(std::int64_t rows, std::int64_t cols, const Float8& how)
      : layout(rows, cols, how),
        bytes(at::zeros({layout.bytes}, at::kByte)),
        matrix{&quantized_format(how), bytes, rows, cols,
               std::make_shared<const std::vector<MatrixPart>>(
                   std::vector<MatrixPart>{{.rows = rows, .runs = {{0, 0, rows}}}})} {
    const at::Tensor codes = all_codes();
    bytes.narrow(0, 0, layout.codes_bytes).copy_(codes.index({at::randint(codes.numel(), {rows * cols})}));
    float8_scales(bytes, layout).copy_(at::rand({layout.scale_rows, layout.scale_cols}) + 0.01);
  }

  // By plain ATen calls.
  at::Tensor numbers() const {
    const at::Tensor scales = float8_scales(bytes, layout)
                                  .repeat_interleave(layout.block_rows, 0)
                                  .repeat_interleave(layout.block_cols, 1);
    return float8_codes(bytes, layout).to(at::kFloat) *
           scales.slice(0, 0, layout.rows).slice(1, 0, layout.cols);
  }

  Float8Layout layout;
  at::Tensor bytes;
  FrozenMatrix matrix;
};

constexpr std::array<Float8, 4> kKinds{{{}, {0, 0}, {128, 128}, {16, 7}}};

}  // namespace

TEST_CASE("codes stand for ATen's numbers, and the nearest code is chosen as ATen does") {
  const at::Tensor codes = all_codes(), numbers = numbers_of(codes);
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    const auto code = codes[i].item<std::uint8_t>();
    CHECK(float8_value(code) == numbers[i].item<float>());
    CHECK(float8_code(numbers[i].item<float>()) == code);
  }
  // Halfway between two neighbours, a little to either side, and numbers of all sizes.
  const at::Tensor sorted = std::get<0>(numbers.sort());
  const at::Tensor halves = (sorted.slice(0, 1) + sorted.slice(0, 0, -1)) / 2;
  const at::Tensor random = at::randn({4000}) * at::exp(at::randn({4000}) * 4);
  const at::Tensor values =
      at::cat({halves, halves * (1 + 1e-6), halves * (1 - 1e-6), random.clamp(-448, 448)}).to(at::kFloat);
  const at::Tensor expected = values.to(at::kFloat8_e4m3fn).view(at::kByte);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i)
    wrong += float8_code(values[i].item<float>()) == expected[i].item<std::uint8_t>() ? 0 : 1;
  CHECK(wrong == 0);
  for (const float large : {449.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
    CHECK(float8_value(float8_code(large)) == 448.0F);
    CHECK(float8_value(float8_code(-large)) == -448.0F);
  }
}

TEST_CASE("decoded rows are codes times their blocks' scales, rounded once") {
  for (const Float8& how : kKinds) {
    for (const auto& [rows, cols] : {std::pair{300, 200}, std::pair{3, 129}, std::pair{1, 1}}) {
      const Stored stored(rows, cols, how);
      const at::Tensor expected = stored.numbers();
      INFO(describe(how) << " " << rows << " x " << cols);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        CHECK(at::equal(stored.matrix.dense(dtype), expected.to(dtype)));
        const std::int64_t begin = rows / 3, end = rows - rows / 4;
        auto wide = at::empty({end - begin, cols});
        decode_float8(stored.bytes, stored.layout, begin, dtype, wide);
        CHECK(at::equal(wide, expected.slice(0, begin, end).to(dtype).to(at::kFloat)));
      }
    }
  }
}

TEST_CASE(
    "a row's largest value becomes the largest code, and others are a sixteenth of themselves off at most") {
  at::Tensor weight = at::randn({70, 130}) * at::exp(at::randn({70, 1}) * 3);
  weight[5] = 0;
  weight[6] = 1e-42;  // its scale would be no normal number
  const FrozenMatrix matrix = quantized_matrix(weight, Float8{});
  const at::Tensor numbers = matrix.dense(at::kFloat);
  const at::Tensor largest = weight.abs().amax(1, true);
  CHECK(at::allclose(numbers.abs().amax(1, true), largest, 1e-6, 1e-30));
  CHECK(numbers[5].count_nonzero().item<std::int64_t>() == 0);
  CHECK(numbers[6].count_nonzero().item<std::int64_t>() == 0);
  const at::Tensor error = (numbers - weight).abs();
  // Half of the last of three bits; near 0 half of the least number, 2^-9 of the scale.
  const at::Tensor bound = (weight.abs() / 16).maximum(largest / 448 * 0x1p-10);
  CHECK((error <= bound * 1.0001 + 1e-38).all().item<bool>());
  CHECK((error > bound * 0.8).any().item<bool>());
  // Two bits, or one scale for all, would be further off.
  CHECK((quantized_matrix(weight.slice(0, 0, 5), Float8{}).dense(at::kFloat) - weight.slice(0, 0, 5))
            .norm()
            .item<double>() < 0.04 * weight.slice(0, 0, 5).norm().item<double>());
}

TEST_CASE("pieces don't change what a matrix becomes in fp8, and what isn't finite is noticed") {
  const at::Tensor weight = at::randn({40, 24});
  const at::Tensor whole = quantized_matrix(weight, Float8{}).bytes;
  const auto quantizer = make_quantizer(40, 24, Float8{});
  at::Tensor bytes = at::zeros({quantizer->bytes()}, at::kByte);
  for (std::int64_t row = 0; row < 40; row += 7) {
    const at::Tensor codes =
        quantizer->add(weight.slice(0, row, std::min<std::int64_t>(row + 7, 40)).flatten());
    bytes.narrow(0, quantizer->code_begin(row * 24), codes.numel()).copy_(codes);
  }
  bytes.slice(0, quantizer->rest_begin()).copy_(quantizer->finish());
  CHECK(at::equal(bytes, whole));
  CHECK_FALSE(quantizer->has_non_finite());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    at::Tensor values = weight.clone();
    values[1][3] = bad;
    const auto other = make_quantizer(40, 24, Float8{});
    other->add(values.flatten());
    CHECK(other->has_non_finite());
  }
  CHECK_THAT(test::error_text([] { make_quantizer(256, 256, Float8{128, 128}); }),
             Contains("a scale for each row") && Contains("128 x 128"));
  CHECK_THAT(test::error_text([&] { make_quantizer(40, 24, Float8{})->add(at::zeros({25})); }),
             Contains("whole rows"));
}

TEST_CASE("a fp8 matrix multiplies as its numbers do, in every dtype") {
  for (const Float8& how : kKinds) {
    const Stored stored(150, 70, how);
    const at::Tensor numbers = stored.numbers();
    const at::Tensor x = at::randn({9, 70}), dy = at::randn({9, 150});
    for (const auto products : {HalfProducts::kNative, HalfProducts::kWidened}) {
      set_half_products(products);
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        auto y = at::empty({9, 150}, dtype), dx = at::empty({9, 70}, dtype);
        stored.matrix.format->forward(y, x.to(dtype), stored.matrix, {}, {});
        stored.matrix.format->backward(dx, dy.to(dtype), stored.matrix, {});
        const FrozenMatrix dense = frozen_matrix(numbers.to(dtype));
        auto expected = at::empty_like(y), expected_dx = at::empty_like(dx);
        dense.format->forward(expected, x.to(dtype), dense, {}, {});
        dense.format->backward(expected_dx, dy.to(dtype), dense, {});
        // The same numbers are multiplied; only sums over panels may be grouped otherwise.
        const double tolerance = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kHalf ? 1e-3 : 1e-6;
        const double size = numbers.abs().max().item<double>();
        CHECK(at::allclose(y, expected, tolerance, tolerance * 10 * size));
        CHECK(at::allclose(dx, expected_dx, tolerance, tolerance * 10 * size));
      }
    }
    set_half_products(HalfProducts::kByFeature);
  }
}

namespace {

// While one lives, fp8 weights are multiplied in fp8.
struct InFloat8 {
  InFloat8() { set_float8_products(true); }
  ~InFloat8() { set_float8_products(false); }
};

// Rows as they are in fp8, by plain ATen calls in fp64.
at::Tensor rounded_rows(const at::Tensor& x) {
  const at::Tensor scales = x.to(at::kFloat).abs().amax(1, true) / 448;
  return (x.to(at::kFloat) / scales).to(at::kFloat8_e4m3fn).to(at::kDouble) * scales.to(at::kDouble);
}

}  // namespace

TEST_CASE("products in fp8 are those of both operands' fp8 numbers, and backward is that of the weight's") {
  const at::Tensor left = at::randn({9, 2}), right = at::randn({20, 2}), bias = at::randn({150});
  for (const Float8& how : {Float8{}, Float8{0, 0}}) {
    const Stored stored(150, 70, how);
    const at::Tensor numbers = stored.numbers().to(at::kDouble);
    at::Tensor x = at::randn({9, 70}).to(at::kBFloat16);
    x[3] = 0;
    x[4] *= 1000;
    for (const auto products : {HalfProducts::kNative, HalfProducts::kWidened}) {
      set_half_products(products);
      const at::ScalarType operand = products == HalfProducts::kNative ? at::kBFloat16 : at::kFloat;
      auto y = at::empty({9, 150}, at::kBFloat16);
      const auto forward = [&] {
        stored.matrix.format->forward(y, x.to(operand), stored.matrix,
                                      {{left.to(operand), right.to(operand), 100}}, bias.to(at::kBFloat16));
        at::Tensor found = y.to(at::kDouble) - bias.to(at::kBFloat16);
        found.slice(1, 100, 120) -= at::mm(left, right.t());
        return found;
      };
      const at::Tensor plain = forward();
      const InFloat8 on;
      const at::Tensor found = forward(), expected = at::mm(rounded_rows(x).nan_to_num(0), numbers.t());
      // Each row by its own size: bf16 results, and two more roundings of the terms and the bias.
      const auto worst = [](const at::Tensor& a, const at::Tensor& b) {
        return ((a - b).norm(2, 1) / (b.norm(2, 1) + 30)).max().item<double>();
      };
      CHECK(worst(found, expected) < 6e-3);
      CHECK(worst(plain, expected) > 1.2e-2);  // the activations' rounding shows

      auto dx = at::empty({9, 70}, at::kBFloat16), dx_plain = at::empty_like(dx);
      const at::Tensor dy = at::randn({9, 150}).to(at::kBFloat16);
      stored.matrix.format->backward(dx, dy, stored.matrix, {});
      set_float8_products(false);
      stored.matrix.format->backward(dx_plain, dy, stored.matrix, {});
      CHECK(at::equal(dx, dx_plain));
    }
    set_half_products(HalfProducts::kByFeature);
  }
}

TEST_CASE("DoRA's norms don't depend on whether products are done in fp8") {
  const Stored stored(40, 70, Float8{});
  const LoraProjection p{
      0, 40, at::randn({3, 70}).to(at::kBFloat16), at::randn({40, 3}).to(at::kBFloat16), {}, {}, 1};
  const at::Tensor plain = dora_norms(stored.matrix, {p});
  const InFloat8 on;
  CHECK(at::equal(dora_norms(stored.matrix, {p}), plain));
  auto crossed = at::empty({3, 40}, at::kBFloat16), exact = at::empty_like(crossed);
  stored.matrix.format->forward(crossed, p.a, stored.matrix, {}, {});
  stored.matrix.format->exact_forward(exact, p.a, stored.matrix);
  CHECK_FALSE(at::equal(crossed, exact));
}

TEST_CASE("scales of blocks aren't multiplied in fp8") {
  CHECK(has_float8_products(Float8{}));
  CHECK(has_float8_products(Float8{0, 0}));
  CHECK_FALSE(has_float8_products(Float8{128, 128}));
  CHECK_FALSE(has_float8_products(precision::FourBits{}));
  const Stored stored(130, 140, {128, 128});
  const at::Tensor x = at::randn({3, 140});
  auto y = at::empty({3, 130}), plain = at::empty_like(y);
  stored.matrix.format->forward(plain, x, stored.matrix, {}, {});
  const InFloat8 on;
  stored.matrix.format->forward(y, x, stored.matrix, {}, {});
  CHECK(at::equal(y, plain));
}
