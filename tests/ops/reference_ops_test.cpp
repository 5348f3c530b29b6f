// Under reference_ops() each operator takes other code than its kernel: its reference's bits, which aren't
// the kernel's.
#include "support/reference_ops.h"

#include <ATen/ATen.h>

#include <functional>
#include <optional>

#include "ops/activation/activation.h"
#include "ops/attention/kernel_choice.h"
#include "ops/embedding/embedding.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/lora/dora.h"
#include "ops/lora/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/packed.h"
#include "ops/norm/norm.h"
#include "ops/quantized/dequantize.h"
#include "ops/quantized/float8_matrix.h"
#include "ops/quantized/quantized_format.h"
#include "ops/rotary/rotary.h"
#include "support/catch.h"
#include "support/tolerance.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using test::ReferenceOps;
using test::relative_distance;

namespace {

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

at::Tensor by_references(const std::function<at::Tensor()>& call) {
  const ReferenceOps references;
  return call();
}

// `expected`: what the reference computes; or nothing, where it is no function of its own.
void check_takes_other_code(const char* op, const std::function<at::Tensor()>& call,
                            const std::optional<at::Tensor>& expected = {}) {
  INFO(op);
  const at::Tensor kernel = call(), reference = by_references(call);
  if (expected) CHECK(at::equal(reference, *expected));
  CHECK_FALSE(at::equal(reference, kernel));
  CHECK(relative_distance(kernel, reference) < 1e-5);
}

}  // namespace

TEST_CASE("operators take their references' code where it is asked for, forward and backward") {
  const at::Tensor x = random({33, 512}, 1), dy = random({33, 512}, 2), delta = random({33, 512}, 3);
  const NormParameters scale{random({512}, 4), {}};
  check_takes_other_code("norm", [&] { return norm(x, scale, {}); }, reference::norm(x, scale, {}));
  check_takes_other_code(
      "add_norm",
      [&] {
        at::Tensor sum;
        return add_norm(x, delta, scale, {}, sum);
      },
      reference::norm(x + delta, scale, {}));
  check_takes_other_code("norm_backward", [&] {
    NormStatistics statistics;
    norm(x, scale, {}, &statistics);
    return norm_backward(dy, {}, x, scale, {}, statistics);
  });
  check_takes_other_code(
      "gated_activation", [&] { return gated_activation(x, Activation::kSilu); },
      reference::gated_activation(x, Activation::kSilu));
  check_takes_other_code("activation_backward", [&] {
    at::Tensor gradient = x.clone();
    activation_backward_(dy, gradient, Activation::kGeluTanh);
    return gradient;
  });
  const CrossEntropyOptions options;
  const at::Tensor labels = at::arange(33, at::kLong) * 3;
  const at::Tensor head = random({200, 512}, 5) * 0.1;
  check_takes_other_code("linear_cross_entropy", [&] { return token_nll(x, head, {}, labels, options); });
}

TEST_CASE("products of bf16 numbers are ATen's where references are asked for") {
  set_half_products(HalfProducts::kWidened);
  const at::Tensor x = random({33, 512}, 1).to(at::kBFloat16), w = random({200, 512}, 2).to(at::kBFloat16);
  const at::Tensor tall = random({3000, 64}, 3).to(at::kBFloat16), zeros = at::zeros({64, 64});
  const auto gradient = [&] {
    at::Tensor sum = zeros.clone();
    matmul_tn_add(sum, tall, tall, 1);
    return sum;
  };
  CHECK(at::equal(by_references([&] { return matmul_nt(x, w); }),
                  at::mm(x.to(at::kFloat), w.to(at::kFloat).t()).to(at::kBFloat16)));
  CHECK(at::equal(by_references(gradient), at::addmm(zeros, tall.to(at::kFloat).t(), tall.to(at::kFloat))));
  by_references([&] {
    CHECK_FALSE(packed_products());
    CHECK(matmul_operand(x).scalar_type() == at::kFloat);
    return x;
  });
  if (tiles::fast_on_cpu()) CHECK_FALSE(at::equal(by_references(gradient), gradient()));
  set_half_products(HalfProducts::kByFeature);
}

TEST_CASE("attention's choice is plain ATen calls on every device") {
  const ReferenceOps references;
  for (const auto device : {at::kCPU, at::kCUDA}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      CHECK(choose_attention_kernel({device, 90, dtype}, 64, {}) == AttentionKernel::kBlocks);
  }
}

TEST_CASE("rotary, DoRA's columns and the embedding's gradient give the same by references") {
  const HeadLayout layout{4, 2, 16};
  const at::Tensor angle = random({9, 8}, 6), qkv = random({9, layout.width()}, 7);
  const auto rotated = [&] {
    at::Tensor result = qkv.clone();
    rotate(result, angle.cos(), angle.sin(), layout);
    return result;
  };
  CHECK(at::equal(by_references(rotated), reference::rotary(qkv, angle.cos(), angle.sin(), layout)));
  CHECK(relative_distance(by_references(rotated), rotated()) < 1e-6);
  const at::Tensor factors = random({40}, 8), x = random({50, 40}, 9);
  const auto sums = [&] { return scale_columns_backward(x, x, factors).factors; };
  CHECK(relative_distance(by_references(sums), sums()) < 1e-6);
  const at::Tensor ids = at::tensor({3, 1, 3, 0, 3}, at::kLong), dy = random({5, 7}, 10);
  const auto gradient = [&] {
    at::Tensor sum = at::zeros({4, 7});
    embedding_backward(sum, dy, ids, 2);
    return sum;
  };
  CHECK(relative_distance(by_references(gradient), gradient()) < 1e-6);
  CHECK_THROWS(by_references([&] {  // ATen's own check of ids is reached
    at::Tensor sum = at::zeros({2, 7});
    embedding_backward(sum, dy, ids, 1);
    return sum;
  }));
}

TEST_CASE("the reference decodes 4-bit weights to the kernels' bits, from any element on") {
  const at::Tensor weight = random({37, 129}, 11);
  for (const std::int64_t nested : {std::int64_t{0}, std::int64_t{256}}) {
    precision::FourBits quantization;
    quantization.nested_block = nested;
    const FrozenMatrix matrix = quantized_matrix(weight, quantization);
    const QuantizedLayout layout(weight.numel(), quantization);
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const std::int64_t first : {0, 1, 64, 777}) {
        CAPTURE(nested, c10::toString(dtype), first);
        const at::Tensor kernel = at::empty({1001}, dtype), plain = at::empty({1001}, dtype);
        dequantize(matrix.bytes, layout, quantization, first, dtype, kernel);
        reference::dequantize(matrix.bytes, layout, quantization, first, dtype, plain);
        CHECK(at::equal(plain, kernel));
        by_references([&] {
          plain.zero_();
          dequantize(matrix.bytes, layout, quantization, first, dtype, plain);
          return plain;
        });
        CHECK(at::equal(plain, kernel));
      }
    }
  }
}

TEST_CASE("the reference decodes fp8 weights to the kernels' bits") {
  const at::Tensor weight = random({37, 129}, 12);
  const FrozenMatrix matrix = quantized_matrix(weight, precision::Float8{});
  const Float8Layout layout(37, 129, {});
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor kernel = at::empty({20, 129}, dtype), plain = at::empty({20, 129}, dtype);
    decode_float8(matrix.bytes, layout, 5, dtype, kernel);
    reference::decode_float8(matrix.bytes, layout, 5, dtype, plain);
    CHECK(at::equal(plain, kernel));
  }
}
