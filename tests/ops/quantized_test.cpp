// 4-bit weights against what bitsandbytes made of the same numbers (make_quantized_goldens.py).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "io/safetensors.h"
#include "ops/dtype.h"
#include "ops/quantized/code_books.h"
#include "ops/quantized/dequantize.h"
#include "ops/quantized/expand_blocks.h"
#include "ops/quantized/quantize.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using Catch::Matchers::Contains;
using precision::CodeBook;
using precision::FourBits;

namespace {

class Goldens {
 public:
  at::Tensor operator()(const std::string& name) const {
    const io::TensorView* view = file_.find(name);
    REQUIRE(view != nullptr);
    auto tensor = at::empty(view->shape, to_torch(view->dtype));
    std::memcpy(tensor.mutable_data_ptr(), view->bytes.data(), view->bytes.size());
    return tensor;
  }
  float offset(const std::string& name) const { return std::stof(file_.metadata().at(name + ".offset")); }

 private:
  io::SafetensorsFile file_ =
      io::SafetensorsFile::open(test::source_dir() / "tests/ops/goldens/quantized.safetensors");
};

at::Tensor floats_at(const FrozenMatrix& matrix, std::int64_t begin, std::int64_t count) {
  return matrix.bytes.narrow(0, begin, 4 * count).view(at::kFloat);
}

// What bitsandbytes stored, in the order of this project's layout.
FrozenMatrix from_golden(const Goldens& goldens, const std::string& name, const FourBits& quantization) {
  const at::Tensor weight = goldens(name + ".weight");
  FrozenMatrix matrix = quantized_matrix(weight);
  const QuantizedLayout layout(weight.numel(), quantization);
  matrix.bytes = at::zeros({layout.bytes}, at::kByte);
  matrix.format = &quantized_format(quantization);
  const auto put = [&](std::int64_t begin, const at::Tensor& values) {
    const at::Tensor bytes = values.contiguous().flatten().view(at::kByte);
    matrix.bytes.narrow(0, begin, bytes.numel()).copy_(bytes);
  };
  put(0, goldens(name + ".codes"));
  put(layout.scales_begin, goldens(name + ".absmax"));
  put(layout.book_begin, goldens(name + ".quant_map"));
  if (quantization.nested_block == 0) return matrix;
  put(layout.nested_scales_begin, goldens(name + ".nested_absmax"));
  put(layout.nested_book_begin, goldens(name + ".nested_quant_map"));
  put(layout.offset_begin, at::tensor({goldens.offset(name)}));
  return matrix;
}

struct Case {
  const char* name;
  FourBits quantization;
};
const std::array<Case, 5> kCases{{{"two_nested_blocks", {}},
                                  {"short_last_block", {}},
                                  {"half", {}},
                                  {"plain_scales", {.nested_block = 0}},
                                  {"fp4", {.book = CodeBook::kFP4}}}};

// The quantised numbers, from weights of any shape and pieces of `piece` numbers.
at::Tensor in_pieces(const at::Tensor& weight, const FourBits& quantization, std::int64_t piece) {
  const auto quantizer = make_quantizer(weight.size(0), weight.size(1), quantization);
  const at::Tensor values = weight.to(at::kFloat).contiguous().flatten();
  std::vector<at::Tensor> bytes;
  for (std::int64_t at = 0; at < values.numel(); at += piece)
    bytes.push_back(quantizer->add(values.slice(0, at, std::min(at + piece, values.numel()))));
  bytes.push_back(at::zeros({quantizer->rest_begin() - quantizer->code_begin(values.numel())}, at::kByte));
  bytes.push_back(quantizer->finish());
  return at::cat(bytes);
}

}  // namespace

TEST_CASE("codes, scales and books are those of bitsandbytes, to the bit") {
  const Goldens goldens;
  for (const Case& c : kCases) {
    if (c.quantization.book != CodeBook::kNF4) continue;  // it is only read
    INFO(c.name);
    const at::Tensor expected = from_golden(goldens, c.name, c.quantization).bytes;
    CHECK(at::equal(quantized_matrix(goldens(std::string(c.name) + ".weight"), c.quantization).bytes,
                    expected));
  }
}

TEST_CASE("another block, nesting or code book doesn't give the numbers of bitsandbytes") {
  const Goldens goldens;
  const at::Tensor weight = goldens("two_nested_blocks.weight"),
                   numbers = goldens("two_nested_blocks.numbers");
  CHECK(at::equal(quantized_matrix(weight).dense(at::kBFloat16), numbers));
  CHECK_FALSE(at::equal(quantized_matrix(weight, FourBits{.block = 32}).dense(at::kBFloat16), numbers));
  CHECK_FALSE(at::equal(quantized_matrix(weight, FourBits{.nested_block = 0}).dense(at::kBFloat16), numbers));
  CHECK_FALSE(
      at::equal(quantized_matrix(weight, FourBits{.nested_block = 128}).dense(at::kBFloat16), numbers));
  FrozenMatrix other_book = quantized_matrix(weight);
  const QuantizedLayout layout(weight.numel(), {});
  floats_at(other_book, layout.book_begin, 16)
      .copy_(at::tensor(at::ArrayRef<float>(code_book(CodeBook::kFP4).data(), 16)));
  CHECK_FALSE(at::equal(other_book.dense(at::kBFloat16), numbers));
}

TEST_CASE("dequantised numbers are those of bitsandbytes, to the bit") {
  const Goldens goldens;
  for (const Case& c : kCases) {
    INFO(c.name);
    const FrozenMatrix matrix = from_golden(goldens, c.name, c.quantization);
    const at::Tensor expected = goldens(std::string(c.name) + ".numbers");
    CHECK(at::equal(matrix.dense(expected.scalar_type()), expected));
    // Any rows, those that begin in the middle of a byte or of a block too; rounded, but kept as fp32.
    for (std::int64_t row = 0; row + 2 <= matrix.rows && row < 6; ++row) {
      CHECK(at::equal(matrix.format->rows(matrix, row, row + 2, expected.scalar_type()),
                      expected.slice(0, row, row + 2)));
      auto wide = at::empty({2, matrix.cols});
      dequantize(matrix.bytes, QuantizedLayout(expected.numel(), c.quantization), c.quantization,
                 row * matrix.cols, expected.scalar_type(), wide);
      CHECK(at::equal(wide, expected.slice(0, row, row + 2).to(at::kFloat)));
    }
  }
}

TEST_CASE("every instruction set that this CPU has decodes to the same bits") {
  // Numbers between two bf16 or two fp16 ones, halfway too, and beyond fp16's largest and smallest.
  const std::int64_t blocks = 40, pairs = 32;
  std::array<float, 16> book = code_book(CodeBook::kNF4);
  book[3] = 1.0F + 0x1p-8F;
  book[4] = 1.0F + 3 * 0x1p-8F;
  at::Tensor scales = at::randn({blocks});
  scales[1] = 1.0F;
  scales[2] = 70000.0F;
  scales[3] = 1e-7F;
  scales[4] = std::numeric_limits<float>::infinity();  // times 0: NaN
  const at::Tensor codes = at::randint(0, 256, {blocks * pairs}, at::kByte);
  const cpu::CodedBlocks from{.codes = codes.const_data_ptr<std::uint8_t>(),
                              .scales = scales.const_data_ptr<float>(),
                              .book = book.data(),
                              .blocks = blocks,
                              .pairs = pairs};
  const auto expand = [&](cpu::Rounding rounding, cpu::Lookup lookup) {
    auto wide = at::empty({blocks, 2 * pairs});
    auto narrow = at::zeros({blocks, 2 * pairs}, at::kShort);
    cpu::expand_blocks(from, rounding, lookup, wide.mutable_data_ptr<float>());
    if (rounding != cpu::Rounding::kNone)
      cpu::expand_blocks(from, rounding, lookup, static_cast<std::uint16_t*>(narrow.mutable_data_ptr()));
    return std::pair(wide.view(at::kInt), narrow);
  };
  for (const auto rounding : {cpu::Rounding::kNone, cpu::Rounding::kBF16, cpu::Rounding::kF16}) {
    const auto plain = expand(rounding, cpu::Lookup::kPlain);
    const bool rounds = rounding != cpu::Rounding::kNone;
    if (rounds) {
      const auto dtype = rounding == cpu::Rounding::kBF16 ? at::kBFloat16 : at::kHalf;
      CHECK(at::equal(plain.first.view(at::kFloat).nan_to_num(0.5),
                      plain.second.view(dtype).to(at::kFloat).nan_to_num(0.5)));
    }
    for (const auto lookup : {cpu::Lookup::kAvx2, cpu::Lookup::kAvx512}) {
      if (lookup > cpu::best_lookup()) continue;
      const auto found = expand(rounding, lookup);
      const auto finite = [](const at::Tensor& bits) { return bits.view(at::kFloat).nan_to_num(0.5); };
      CHECK(at::equal(finite(found.first), finite(plain.first)));
      CHECK(at::equal(found.first.view(at::kFloat).isnan(), plain.first.view(at::kFloat).isnan()));
      // What a NaN's other bits are is free in fp16.
      const auto numbers = [&](const at::Tensor& bits) {
        return rounding == cpu::Rounding::kF16 ? bits.view(at::kHalf).nan_to_num(0.5).view(at::kShort) : bits;
      };
      CHECK(at::equal(numbers(found.second), numbers(plain.second)));
    }
  }
}

TEST_CASE("neither pieces nor threads change what a matrix is quantised to") {
  const at::Tensor weight = at::randn({768, 1024}).to(at::kBFloat16);
  const at::Tensor whole = quantized_matrix(weight).bytes;
  CHECK(at::equal(in_pieces(weight, {}, 64 * 37), whole));
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  CHECK(at::equal(quantized_matrix(weight).bytes, whole));
  at::set_num_threads(threads);
}

TEST_CASE("a weight that isn't finite is noticed, and only NF4 is made") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t at : {0, 77, 129}) {
      at::Tensor values = at::randn({130});
      values[at] = bad;
      const auto quantizer = make_quantizer(1, 130, FourBits{});
      quantizer->add(values);
      CHECK(quantizer->has_non_finite());
    }
  }
  CHECK_THAT(test::error_text([] { make_quantizer(1, 64, FourBits{.book = CodeBook::kFP4}); }),
             Contains("got fp4"));
}

TEST_CASE("a quantised matrix of several parts multiplies as its numbers do, in every dtype") {
  // Two modules; the second one's rows alternate between two parts.
  const at::Tensor first = at::randn({300, 70}), second = at::randn({8, 70});
  FrozenMatrix matrix = quantized_matrix(first);
  const FrozenMatrix other = quantized_matrix(second);
  const std::vector<MatrixPart> parts{{.offset_bytes = 0, .rows = 300, .runs = {{0, 0, 300}}},
                                      {.offset_bytes = matrix.bytes.numel(),
                                       .rows = 8,
                                       .runs = {{0, 300, 2}, {2, 304, 2}, {4, 302, 2}, {6, 306, 2}}}};
  const at::Tensor stored = other.dense(at::kFloat);
  const at::Tensor numbers = at::cat({matrix.dense(at::kFloat), stored.slice(0, 0, 2), stored.slice(0, 4, 6),
                                      stored.slice(0, 2, 4), stored.slice(0, 6, 8)});
  matrix.bytes = at::cat({matrix.bytes, other.bytes});
  matrix.rows = 308;
  matrix.parts = std::make_shared<const std::vector<MatrixPart>>(parts);
  CHECK(at::equal(matrix.dense(at::kFloat), numbers));

  const at::Tensor x = at::randn({9, 70}), dy = at::randn({9, 308}), bias = at::randn({308});
  const at::Tensor left = at::randn({9, 2}), right = at::randn({20, 2}), a = at::randn({2, 70});
  for (const auto products : {HalfProducts::kNative, HalfProducts::kWidened}) {
    set_half_products(products);
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(dtype);
      const auto in = [dtype](const at::Tensor& tensor) { return tensor.to(dtype); };
      auto y = at::empty({9, 308}, dtype), dx = at::empty({9, 70}, dtype);
      matrix.format->forward(y, in(x), matrix, {{in(left), in(right), 290 - 20}}, in(bias));
      matrix.format->backward(dx, in(dy), matrix, {{in(left), in(a), 0}});
      const FrozenMatrix dense = frozen_matrix(in(numbers));
      auto expected = at::empty_like(y), expected_dx = at::empty_like(dx);
      dense.format->forward(expected, in(x), dense, {{in(left), in(right), 290 - 20}}, in(bias));
      dense.format->backward(expected_dx, in(dy), dense, {{in(left), in(a), 0}});
      // The same numbers are multiplied; only sums over panels may be grouped otherwise.
      const double tolerance = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kHalf ? 1e-3 : 1e-6;
      CHECK(at::allclose(y, expected, tolerance, tolerance * 10));
      CHECK(at::allclose(dx, expected_dx, tolerance, tolerance * 10));
    }
  }
  set_half_products(HalfProducts::kByFeature);
}

TEST_CASE("backward is the derivative of forward, by finite differences") {
  const FrozenMatrix matrix = quantized_matrix(at::randn({5, 7}));
  const at::Tensor x = at::randn({3, 7}, at::kDouble), dy = at::randn({3, 5}, at::kDouble);
  const auto value = [&](const at::Tensor& input) {
    auto y = at::empty({3, 5}, at::kDouble);
    matrix.format->forward(y, input, matrix, {}, {});
    return (y * dy).sum().item<double>();
  };
  auto dx = at::empty({3, 7}, at::kDouble);
  matrix.format->backward(dx, dy, matrix, {});
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor step = at::zeros_like(x);
    step.view({-1})[i] = 1e-5;
    const double numeric = (value(x + step) - value(x - step)) / 2e-5;
    CHECK(std::abs(numeric - dx.view({-1})[i].item<double>()) < 1e-8);
  }
}

TEST_CASE("a quantised table can't be looked up in, and a matrix needs its parts") {
  FrozenMatrix matrix = quantized_matrix(at::randn({4, 8}));
  CHECK_THROWS_AS(matrix.format->lookup(matrix, at::tensor({1}, at::kLong), at::kFloat), Error);
  matrix.parts = nullptr;
  CHECK_THROWS_AS(matrix.dense(at::kFloat), Error);
}
