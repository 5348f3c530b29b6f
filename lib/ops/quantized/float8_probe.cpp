#include "ops/quantized/float8_probe.h"

#include <ATen/ATen.h>

#include <exception>

#include "base/error.h"
#include "base/strings.h"
#include "ops/out_of_memory.h"
#include "ops/quantized/float8_product.h"

namespace lorikeet::ops {
namespace {

// One that libtorch gives its small tiles, and one that it gives larger ones. Neither number of tokens is a
// multiple of a tile's rows. Results are columns of wider rows, as those of a group's modules are.
constexpr struct {
  std::int64_t tokens, out;
} kShapes[] = {{300, 272}, {2092, 2048}};
constexpr std::int64_t kIn = 256;
// Of the largest number: the result is rounded to 8 bits, and cards add products with 13 bits or more. A row
// that gets its neighbour's scale is off by a seventh or more.
constexpr double kTolerance = 1.0 / 64;

// Numbers of either sign; each row is 1 to 7 times as large as the first.
Float8Rows test_rows(std::int64_t rows, double step, const at::Device& device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor values = at::arange(rows * kIn, options).mul_(step).sin_().view({rows, kIn});
  const at::Tensor factors = at::arange(rows, options).remainder_(7).add_(1).unsqueeze(1);
  return to_float8_rows(values.mul_(factors).to(at::kBFloat16));
}

at::Tensor decoded(const Float8Rows& rows) { return rows.codes.to(at::kFloat).mul_(rows.scales); }

// Of the largest number.
double largest_difference(std::int64_t tokens, std::int64_t out_features, const at::Device& device) {
  const Float8Rows x = test_rows(tokens, 0.37, device), w = test_rows(out_features, 0.73, device);
  const at::Tensor wide =
      at::zeros({tokens, 2 * out_features}, at::TensorOptions(at::kBFloat16).device(device));
  const at::Tensor out = wide.slice(1, out_features);
  float8_product_out(out, x, w.codes, w.scales.flatten());
  const at::Tensor expected = at::mm(decoded(x), decoded(w).t());
  return ((out.to(at::kFloat) - expected).abs().max() / expected.abs().max()).item<double>();
}

[[noreturn]] void refuse(const at::Device& device, const std::string& cause) {
  throw Error("[precision] expected " + device.str() +
                  " and this libtorch to multiply in fp8 with a scale for each row, but " + cause +
                  "; leave precision.matmul out: weights in fp8 are multiplied as bf16 numbers then",
              ErrorKind::kEnvironment);
}

}  // namespace

void require_float8_products(const at::Device& device) {
  if (!device.is_cuda()) return;
  for (const auto& [tokens, out_features] : kShapes) {
    double difference = 0;
    try {
      difference = largest_difference(tokens, out_features, device);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // libtorch passes on what cuBLAS and CUTLASS say
      if (is_out_of_memory(error)) throw;
      refuse(device, "it was refused: " + split(error.what(), '\n').front());
    }
    // Not a number is a fault, too.
    if (!(difference <= kTolerance))
      refuse(device, "its numbers are off by " + std::to_string(100 * difference) + "% of the largest");
  }
}

}  // namespace lorikeet::ops
