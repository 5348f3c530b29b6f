// The kernels that decode quantised weights against the CPU's decoders, to the bit.
#include "ops/quantized/dequantize.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "card/report.h"
#include "ops/matrix_stack.h"
#include "ops/quantized/code_books.h"
#include "ops/quantized/float8_matrix.h"
#include "ops/quantized/float8_product.h"
#include "ops/quantized/quantized_format.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using precision::CodeBook;
using precision::FourBits;

namespace {

const at::Device kCard("cuda:1");

// Codes, scales and books drawn at random: decoding takes them as they are. Blocks whose numbers overflow
// fp16 or are below bf16's and fp16's normal numbers are among them.
at::Tensor random_bytes(const QuantizedLayout& layout, const FourBits& quantization) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  at::Tensor bytes = at::randint(0, 256, {layout.bytes}, generator, at::kByte);
  const auto put = [&](std::int64_t begin, const at::Tensor& values) {
    bytes.narrow(0, begin, 4 * values.numel()).copy_(values.contiguous().view(at::kByte));
  };
  put(layout.book_begin, at::tensor(at::ArrayRef<float>(code_book(quantization.book).data(), 16)));
  const bool nested = quantization.nested_block != 0;
  const std::int64_t scales = nested ? layout.nested_blocks : layout.blocks;
  at::Tensor drawn = at::rand({scales}, generator).add_(0.01);
  for (std::int64_t i = 0; i < scales; ++i) {
    if (i % 5 == 2) drawn[i] = 90000.0F;
    if (i % 5 == 4) drawn[i] = 1e-39F;
  }
  put(nested ? layout.nested_scales_begin : layout.scales_begin, drawn);
  if (nested) {
    put(layout.nested_book_begin, at::tensor(at::ArrayRef<float>(dynamic_book().data(), 256)));
    put(layout.offset_begin, at::tensor({0.123F}));
  }
  return bytes;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() &&
         at::equal(a.contiguous().flatten().view(at::kByte), b.contiguous().flatten().view(at::kByte));
}

struct Decoded {
  at::Tensor cpu, card;
};

Decoded decoded(const at::Tensor& bytes, const QuantizedLayout& layout, const FourBits& quantization,
                std::int64_t first, std::int64_t count, at::ScalarType rounded, at::ScalarType dtype) {
  at::Tensor cpu = at::empty({count}, dtype);
  const at::Tensor card = at::empty({count}, at::TensorOptions(dtype).device(kCard));
  dequantize(bytes, layout, quantization, first, rounded, cpu);
  dequantize(bytes.to(kCard), layout, quantization, first, rounded, card);
  return {cpu, card.cpu()};
}

}  // namespace

TEST_CASE("4-bit weights decoded on a card have the CPU's bits, for every form, range and dtype") {
  card::reset_report();
  const std::vector<FourBits> forms{{},
                                    {.nested_block = 0},
                                    {.book = CodeBook::kFP4},
                                    {.book = CodeBook::kFP4, .nested_block = 0},
                                    {.block = 128},
                                    {.block = 32, .nested_block = 4}};
  std::int64_t launches = 0;
  for (const FourBits& quantization : forms) {
    // One number, an odd count within a block, whole blocks, a short last block, and several nested blocks.
    for (const std::int64_t elements : {1, 65, 256, 1001, 64 * 256 * 2 + 77, 64 * 256 * 3}) {
      const QuantizedLayout layout(elements, quantization);
      const at::Tensor bytes = random_bytes(layout, quantization);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        INFO(describe(quantization) << ", " << elements << " numbers, " << dtype);
        // All, all but the ends, those from within a byte to within another, one.
        const std::int64_t last = elements - 1;
        for (const auto& [first, end] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{0, elements},
                                                                {std::min<std::int64_t>(1, last), elements},
                                                                {elements / 3, last},
                                                                {last, elements}}) {
          INFO("[" << first << ", " << end << ")");
          const Decoded made = decoded(bytes, layout, quantization, first, end - first, dtype, dtype);
          CHECK(same_bits(made.card, made.cpu));
          launches += end > first ? 1 : 0;
        }
        const Decoded wide = decoded(bytes, layout, quantization, 0, elements, dtype, at::kFloat);
        CHECK(same_bits(wide.card, wide.cpu));
        ++launches;
      }
    }
  }
  CHECK(card::report().kernels.at("dequantize_cuda.cu") == launches);
  CHECK(card::report().hazards.empty());
}

TEST_CASE("fp8 weights decoded on a card have the CPU's bits, for every block, width, range and dtype") {
  card::reset_report();
  std::int64_t launches = 0;
  for (const precision::Float8& how :
       std::vector<precision::Float8>{{1, 0}, {0, 0}, {128, 128}, {2, 8}, {3, 5}}) {
    for (const auto& [rows, cols] :
         {std::pair{1, 1}, std::pair{37, 129}, std::pair{200, 260}, std::pair{3, 2176}}) {
      const Float8Layout layout(rows, cols, how);
      at::Tensor bytes = at::randint(0, 256, {layout.bytes}, at::kByte);
      bytes.masked_fill_(bytes.bitwise_and(0x7F).eq(0x7F), 0x7E);  // without NaN
      at::Tensor scales = float8_scales(bytes, layout);
      scales.copy_(at::rand_like(scales) + 0.01);
      scales[0][0] = 1000.0F;  // beyond fp16's largest
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const std::int64_t first : {0, rows / 3}) {
          INFO(describe(how) << ", " << rows << " x " << cols << " from " << first << ", " << dtype);
          at::Tensor cpu = at::empty({rows - first, cols}, dtype);
          const at::Tensor card = at::empty({rows - first, cols}, at::TensorOptions(dtype).device(kCard));
          decode_float8(bytes, layout, first, dtype, cpu);
          decode_float8(bytes.to(kCard), layout, first, dtype, card);
          CHECK(same_bits(card.cpu(), cpu));
          ++launches;
        }
      }
    }
  }
  CHECK(card::report().kernels.at("float8_cuda.cu") == launches);
  CHECK(card::report().hazards.empty());
}

TEST_CASE("rows are brought to fp8 on a card with the CPU's bits, whatever their width and values") {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(9);
  card::reset_report();
  std::int64_t launches = 0;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t width : {1, 40, 133, 2048, 5000}) {
      INFO(dtype << ", rows of " << width);
      at::Tensor x = at::randn({7, width}, generator)
                         .mul_(at::tensor({1.0, 1e-3, 300.0, 1.0, 0.0, 1e-6, 5.0}).view({7, 1}));
      x = x.to(dtype);
      const Float8Rows cpu = to_float8_rows(x), card = to_float8_rows(x.to(kCard));
      CHECK(same_bits(card.scales.cpu(), cpu.scales));
      CHECK(same_bits(card.codes.cpu(), cpu.codes));
      // Columns of a wider matrix, whose rows begin anywhere.
      const at::Tensor wide = at::cat({x.slice(1, 0, 1), x}, 1).to(kCard).slice(1, 1, width + 1);
      CHECK(same_bits(to_float8_rows(wide).codes.cpu(), cpu.codes));
      launches += 2;
    }
  }
  CHECK(card::report().kernels.at("float8_cuda.cu") == launches);
  // A number that is none, or infinite, makes its row's results NaN, and no other's.
  at::Tensor broken = at::ones({3, 64});
  broken[0][5] = std::numeric_limits<float>::quiet_NaN();
  broken[2][63] = -std::numeric_limits<float>::infinity();
  const Float8Rows rows = to_float8_rows(broken.to(kCard));
  const at::Tensor decoded = rows.codes.cpu().to(at::kFloat) * rows.scales.cpu();
  for (const std::int64_t row : {0, 2}) CHECK(decoded[row].sum().isnan().item<bool>());
  CHECK(at::equal(decoded[1], at::ones({64})));
  CHECK(card::report().hazards.empty());
}

TEST_CASE("a quantised matrix of odd width multiplies on a card as on the CPU, on the current stream") {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(8);
  const FrozenMatrix matrix = quantized_matrix(at::randn({35, 13}, generator));
  FrozenMatrix on_card = matrix;
  const at::Tensor x = at::randn({9, 13}, generator), dy = at::randn({9, 35}, generator);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(kCard, 0);
  card::reset_report();
  {
    const c10::StreamGuard guard(stream);
    on_card.bytes = matrix.bytes.to(kCard);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(dtype);
      const auto in = [dtype](const at::Tensor& tensor) { return tensor.to(kCard, dtype); };
      CHECK(same_bits(on_card.dense(dtype).cpu(), matrix.dense(dtype)));
      CHECK(same_bits(on_card.format->rows(on_card, 3, 6, dtype).cpu(),
                      matrix.format->rows(matrix, 3, 6, dtype)));
      at::Tensor y = in(at::empty({9, 35})), dx = in(at::empty({9, 13}));
      on_card.format->forward(y, in(x), on_card, {}, {});
      on_card.format->backward(dx, in(dy), on_card, {});
      const at::Tensor numbers = matrix.dense(dtype).to(at::kFloat);
      // Operands and results are rounded to the dtype.
      const double tolerance = dtype == at::kBFloat16 ? 1e-2 : dtype == at::kHalf ? 2e-3 : 1e-5;
      CHECK(test::relative_distance(y.cpu(), x.matmul(numbers.t())) < tolerance);
      CHECK(test::relative_distance(dx.cpu(), dy.matmul(numbers)) < tolerance);
    }
  }
  CHECK(card::report().hazards.empty());
}

TEST_CASE("a stack of quantised matrices is decoded by a launch a part, as its matrices one by one") {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(10);
  constexpr std::int64_t kCount = 4;
  std::int64_t four_bits = 0, fp8 = 0;
  card::reset_report();
  for (const precision::Quantization& how :
       std::vector<precision::Quantization>{FourBits{}, FourBits{.nested_block = 0}, precision::Float8{}}) {
    // Eight numbers at a time, and one or two.
    for (const std::int64_t cols : {64, 13}) {
      const std::int64_t gap = cols == 64 ? 48 : 20;  // other tensors between the matrices
      INFO(describe(how) << ", rows of " << cols);
      // Two modules, whose rows go by turns.
      constexpr std::int64_t kRows = 6;
      std::vector<at::Tensor> bytes;
      MatrixPart part{.rows = kRows, .runs = {{0, 0, 3}, {3, 6, 3}}};
      for (std::int64_t i = 0; i < 2 * kCount; ++i) {
        const at::Tensor of_one = quantized_matrix(at::randn({kRows, cols}, generator), how).bytes;
        part.offset_bytes = of_one.numel();
        bytes.insert(bytes.end(),
                     {of_one, i % 2 == 1 ? at::zeros({gap}, at::kByte) : of_one.narrow(0, 0, 0)});
      }
      MatrixPart second = part;
      for (StoredRun& run : second.runs) run.row += 3;
      part.offset_bytes = 0;
      const auto parts = std::make_shared<const std::vector<MatrixPart>>(std::vector{part, second});
      MatrixStack stack{.first = {&quantized_format(how), {}, 2 * kRows, cols, parts},
                        .bytes = at::cat(bytes),
                        .apart = 2 * second.offset_bytes + gap,
                        .count = kCount};
      stack.first.bytes = stack.bytes.narrow(0, 0, 2 * second.offset_bytes);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const std::int64_t begin : {0, 1}) {
          const at::Tensor out = at::empty({kCount - begin, 2 * kRows, cols}, dtype);
          stack.first.format->stack_out(out, stack, begin);
          for (std::int64_t i = begin; i < kCount; ++i)
            CHECK(same_bits(out[i - begin], stack.of(i).dense(dtype)));
          MatrixStack there = stack;
          there.bytes = stack.bytes.to(kCard);
          there.first.bytes = there.bytes.narrow(0, 0, stack.first.bytes.numel());
          const at::Tensor on_card = at::empty(out.sizes(), out.options().device(kCard));
          there.first.format->stack_out(on_card, there, begin);
          CHECK(same_bits(on_card.cpu(), out));
          (std::holds_alternative<FourBits>(how) ? four_bits : fp8) += 4;
        }
      }
    }
  }
  CHECK(card::report().kernels.at("dequantize_cuda.cu") == four_bits);
  CHECK(card::report().kernels.at("float8_cuda.cu") == fp8);
  CHECK(card::report().hazards.empty());
}

// More numbers than a launch has threads. Its ctest entry gives the card the memory.
TEST_CASE("a weight of more bytes than a launch has threads is decoded in strides", "[.large]") {
  const std::int64_t elements = 2 * 65535 * 256 + 130;
  const FourBits quantization;
  const QuantizedLayout layout(elements, quantization);
  const at::Tensor bytes = random_bytes(layout, quantization);
  const Decoded made = decoded(bytes, layout, quantization, 0, elements, at::kBFloat16, at::kBFloat16);
  CHECK(same_bits(made.card, made.cpu));
}
