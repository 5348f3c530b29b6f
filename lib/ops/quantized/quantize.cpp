#include "ops/quantized/quantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/check.h"
#include "ops/quantized/float8_cpu.h"
#include "ops/quantized/float8_layout.h"
#include "ops/quantized/layout.h"
#include "ops/quantized/quantize_cpu.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "quantize";
constexpr std::int64_t kGrainBlocks = 256;

// ATen splits a large sum over threads: on one its result is the same on every machine.
float serial_mean(const at::Tensor& values) {
  float mean = 0;
  at::parallel_for(0, 1, 1,
                   [&](std::int64_t, std::int64_t) { mean = *values.mean().const_data_ptr<float>(); });
  return mean;
}

class FourBitQuantizer : public Quantizer {
 public:
  FourBitQuantizer(std::int64_t elements, const precision::FourBits& quantization)
      : quantization_(quantization),
        layout_(elements, quantization),
        scales_(at::empty({layout_.blocks}, at::kFloat)) {
    check(quantization.book == precision::CodeBook::kNF4 && quantization.block % 2 == 0, kOp,
          "nf4 in blocks of an even number", [&] { return describe(quantization); });
  }

  std::int64_t bytes() const override { return layout_.bytes; }
  std::int64_t unit() const override { return quantization_.block; }
  std::int64_t code_begin(std::int64_t number) const override { return number / 2; }
  std::int64_t rest_begin() const override { return layout_.scales_begin; }
  bool has_non_finite() const override { return non_finite_; }

  at::Tensor add(const at::Tensor& values) override {
    check_tensor(values.dim() == 1 && values.scalar_type() == at::kFloat && values.is_contiguous() &&
                     done_ % quantization_.block == 0 && done_ + values.numel() <= layout_.elements,
                 kOp, "fp32 numbers, whole blocks of them unless they are the last", values);
    const std::int64_t count = values.numel(), block = quantization_.block;
    const std::int64_t first = done_ / block, blocks = (count + block - 1) / block;
    at::Tensor codes = at::empty({(count + 1) / 2}, at::kByte);
    const float* from = values.const_data_ptr<float>();
    auto* to = codes.mutable_data_ptr<std::uint8_t>();
    float* scales = scales_.mutable_data_ptr<float>() + first;
    const SmallBook& book = code_book(quantization_.book);
    at::parallel_for(0, blocks, kGrainBlocks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const std::int64_t left = std::min(block, count - b * block);
        scales[b] = cpu::quantize_block(from + b * block, left, left == block, book, to + b * block / 2);
      }
    });
    done_ += count;
    non_finite_ =
        non_finite_ || std::any_of(scales, scales + blocks, [](float s) { return !std::isfinite(s); });
    return codes;
  }

  at::Tensor finish() const override {
    check(done_ == layout_.elements, kOp, "all numbers of the tensor",
          [&] { return std::to_string(done_) + " of " + std::to_string(layout_.elements); });
    at::Tensor bytes = at::zeros({layout_.bytes - layout_.scales_begin}, at::kByte);
    const auto at = [&](std::int64_t begin) {
      return bytes.mutable_data_ptr<std::uint8_t>() + (begin - layout_.scales_begin);
    };
    const auto put = [&](std::int64_t begin, const float* values, std::size_t count) {
      std::memcpy(at(begin), values, count * sizeof(float));
    };
    const SmallBook& book = code_book(quantization_.book);
    put(layout_.book_begin, book.data(), book.size());
    const auto blocks = static_cast<std::size_t>(layout_.blocks);
    if (quantization_.nested_block == 0) {
      put(layout_.scales_begin, scales_.const_data_ptr<float>(), blocks);
      return bytes;
    }
    const float mean = layout_.blocks == 0 ? 0.0F : serial_mean(scales_);
    const at::Tensor centred = scales_ - mean;
    const float* from = centred.const_data_ptr<float>();
    for (std::int64_t i = 0; i < layout_.nested_blocks; ++i) {
      const std::int64_t begin = i * quantization_.nested_block;
      const std::int64_t count = std::min(quantization_.nested_block, layout_.blocks - begin);
      const float scale = cpu::quantize_scales(from + begin, count, at(layout_.scales_begin + begin));
      put(layout_.nested_scales_begin + i * static_cast<std::int64_t>(sizeof(float)), &scale, 1);
    }
    put(layout_.nested_book_begin, dynamic_book().data(), dynamic_book().size());
    put(layout_.offset_begin, &mean, 1);
    return bytes;
  }

 private:
  precision::FourBits quantization_;
  QuantizedLayout layout_;
  at::Tensor scales_;  // fp32 [blocks]
  std::int64_t done_ = 0;
  bool non_finite_ = false;
};

class Float8Quantizer : public Quantizer {
 public:
  Float8Quantizer(std::int64_t rows, std::int64_t cols, const precision::Float8& quantization)
      : layout_(rows, cols, quantization), scales_(at::empty({rows}, at::kFloat)) {
    check(quantization == precision::Float8{}, kOp, "fp8 with a scale for each row",
          [&] { return describe(quantization); });
  }

  std::int64_t bytes() const override { return layout_.bytes; }
  std::int64_t unit() const override { return layout_.cols; }
  std::int64_t code_begin(std::int64_t number) const override { return number; }
  std::int64_t rest_begin() const override { return layout_.scales_begin; }
  bool has_non_finite() const override { return non_finite_; }

  at::Tensor add(const at::Tensor& values) override {
    const std::int64_t cols = layout_.cols, rows = values.numel() / cols;
    check_tensor(values.dim() == 1 && values.scalar_type() == at::kFloat && values.is_contiguous() &&
                     rows * cols == values.numel() && done_ + rows <= layout_.rows,
                 kOp, "fp32 numbers, whole rows of them", values);
    at::Tensor codes = at::empty({values.numel()}, at::kByte);
    const float* from = values.const_data_ptr<float>();
    auto* to = codes.mutable_data_ptr<std::uint8_t>();
    float* scales = scales_.mutable_data_ptr<float>() + done_;
    at::parallel_for(0, rows, /*grain_size=*/1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        scales[row] = cpu::encode_float8(from + row * cols, cols, to + row * cols);
    });
    done_ += rows;
    non_finite_ =
        non_finite_ || std::any_of(scales, scales + rows, [](float s) { return !std::isfinite(s); });
    return codes;
  }

  at::Tensor finish() const override {
    check(done_ == layout_.rows, kOp, "all rows of the matrix",
          [&] { return std::to_string(done_) + " of " + std::to_string(layout_.rows); });
    at::Tensor bytes = at::zeros({layout_.bytes - layout_.scales_begin}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), scales_.const_data_ptr(), scales_.nbytes());
    return bytes;
  }

 private:
  Float8Layout layout_;
  at::Tensor scales_;  // fp32 [rows]
  std::int64_t done_ = 0;
  bool non_finite_ = false;
};

}  // namespace

std::unique_ptr<Quantizer> make_quantizer(std::int64_t rows, std::int64_t cols,
                                          const precision::Quantization& quantization) {
  if (const auto* four_bits = std::get_if<precision::FourBits>(&quantization))
    return std::make_unique<FourBitQuantizer>(rows * cols, *four_bits);
  return std::make_unique<Float8Quantizer>(rows, cols, std::get<precision::Float8>(quantization));
}

}  // namespace lorikeet::ops
