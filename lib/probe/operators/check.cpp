#include "probe/operators/check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "ops/autograd.h"
#include "ops/matmul/matmul.h"
#include "precision/policy.h"

namespace lorikeet::probe {
namespace {

// Of a GPU, 10 * major + minor; a CPU has all that operators ask for.
int capability_of(at::Device device) {
  if (!device.is_cuda()) return std::numeric_limits<int>::max();
  return device::cuda_devices().at(static_cast<std::size_t>(device.index())).capability();
}

}  // namespace

const std::vector<CheckedPrecision>& checked_precisions() {
  using Preset = config::PrecisionPreset;
  static const std::vector<CheckedPrecision> all = {
      {"fp32", Preset::kFp32, at::kFloat, 2e-5, "sums of up to 8,200 fp32 terms in another order"},
      {"tf32", Preset::kTf32, at::kFloat, 3e-3, "operands of products rounded to 11 bits"},
      {"bf16", Preset::kBf16, at::kBFloat16, 2e-2, "a few roundings to 8 bits, 2^-9 of the value each"},
      {"fp16", Preset::kFp16, at::kHalf, 2.5e-3, "a few roundings to 11 bits, 2^-12 of the value each"},
  };
  return all;
}

std::vector<CheckedPrecision> precisions_of(const device::CudaDevice& card) {
  std::vector<CheckedPrecision> supported;
  for (const CheckedPrecision& precision : checked_precisions()) {
    try {
      precision::require_supported(precision::resolve({.preset = precision.preset}),
                                   {.kind = device::Device::Kind::kCuda, .index = 0}, {card});
      supported.push_back(precision);
    } catch (const Error& error) {                         // a run in it is refused in the same way
      if (error.kind() == ErrorKind::kEnvironment) throw;  // so is every other
    }
  }
  return supported;
}

double relative_error(const at::Tensor& value, const at::Tensor& expected) {
  if (!value.defined() || value.sizes() != expected.sizes()) return OperatorCheck::kNotFinite;
  if (value.numel() == 0) return 0;
  const at::Tensor got = value.cpu().to(at::kDouble), right = expected.to(at::kDouble);
  if (!at::isfinite(got).all().item<bool>()) return OperatorCheck::kNotFinite;
  const double scale = right.abs().max().item<double>();
  return (got - right).abs().max().item<double>() / std::max(scale, 1e-30);
}

void check_case(const OperatorCase& one, at::Device device, const CheckedPrecision& precision,
                OperatorCheck& check) {
  const ops::WithoutAutograd no_graph;  // as in a run
  try {
    const Results expected = one.run({.device = at::kCPU, .rounded = precision.dtype, .dtype = at::kDouble});
    const Results got = one.run({.device = device, .rounded = precision.dtype, .dtype = precision.dtype});
    for (std::size_t r = 0; r < expected.size(); ++r) {
      const double error = relative_error(got.at(r).second, expected[r].second);
      ++check.results;
      check.error = std::max(check.error, error);
      if (error <= precision.tolerance) continue;
      const std::string off = error < OperatorCheck::kNotFinite
                                  ? "is off by " + format_number("%.2g", error) + " of its largest value, " +
                                        format_number("%.2g", precision.tolerance) + " is allowed"
                                  : std::string("isn't finite, or has another shape");
      check.wrong.push_back(one.form + ": " + expected[r].first + " " + off);
    }
  } catch (const std::exception& error) {
    check.wrong.push_back(one.form + ": " + split(error.what(), '\n').front());
    check.device_failed = dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
  }
}

OperatorCheck check_operator(const std::string& op, at::Device device, const CheckedPrecision& precision) {
  ops::set_cuda_products(precision.preset == config::PrecisionPreset::kTf32);
  const int capability = capability_of(device);
  OperatorCheck check;
  for (const OperatorCase& one : operator_cases()) {
    if (one.op == op && one.least_capability <= capability) check_case(one, device, precision, check);
    if (check.device_failed) break;
  }
  return check;
}

}  // namespace lorikeet::probe
