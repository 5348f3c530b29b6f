#include "ops/quantized/float8_probe.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/quantized/float8_product.h"

namespace lorikeet::ops {
namespace {

// More rows than a kernel's tile has, and no multiple of that.
constexpr std::int64_t kTokens = 300, kIn = 256, kOut = 272;
// Of the largest number: the result is rounded to 8 bits, and cards add products with 13 bits or more. A
// scale of another row is off by half or more.
constexpr double kTolerance = 1.0 / 64;

// Numbers of either sign; each row is 1 to 7 times as large as the first.
Float8Rows made_up_rows(std::int64_t rows, double step, const at::Device& device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor numbers = at::arange(rows * kIn, options).mul_(step).sin_().view({rows, kIn});
  const at::Tensor factors = at::arange(rows, options).remainder_(7).add_(1).unsqueeze(1);
  return to_float8_rows(numbers.mul_(factors).to(at::kBFloat16));
}

at::Tensor numbers(const Float8Rows& rows) { return rows.codes.to(at::kFloat).mul_(rows.scales); }

[[noreturn]] void refuse(const at::Device& device, const std::string& cause) {
  throw Error("[precision] expected " + device.str() +
                  " and this libtorch to multiply in fp8 with a scale for each row, but " + cause +
                  "; leave precision.matmul out: weights in fp8 are multiplied as bf16 numbers then",
              ErrorKind::kEnvironment);
}

double largest_difference(const at::Device& device) {
  const Float8Rows x = made_up_rows(kTokens, 0.37, device), w = made_up_rows(kOut, 0.73, device);
  at::Tensor out = at::empty({kTokens, kOut}, at::TensorOptions(at::kBFloat16).device(device));
  float8_product_out(out, x, w.codes, w.scales.flatten());
  const at::Tensor expected = at::mm(numbers(x), numbers(w).t());
  return ((out.to(at::kFloat) - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace

void require_float8_products(const at::Device& device) {
  if (!device.is_cuda()) return;
  double difference = 0;
  try {
    difference = largest_difference(device);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    refuse(device, "it was refused: " + text.substr(0, text.find('\n')));
  }
  // Not a number is a fault, too.
  if (!(difference <= kTolerance))
    refuse(device, "its numbers are off by " + std::to_string(100 * difference) + "% of the largest");
}

}  // namespace lorikeet::ops
