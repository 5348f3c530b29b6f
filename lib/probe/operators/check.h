#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/settings.h"
#include "device/device.h"
#include "probe/operators/cases.h"

namespace lorikeet::probe {

/// A precision that operators are checked in, and how far a result may stand from the expected one: the
/// largest difference as a share of the expected results' largest value.
struct CheckedPrecision {
  const char* name;
  config::PrecisionPreset preset;
  at::ScalarType dtype;
  double tolerance;
  const char* why;  ///< what the tolerance is made of
};

/// fp32, tf32, bf16, fp16.
const std::vector<CheckedPrecision>& checked_precisions();

/// Those that `card` has fast arithmetic for, which runs may use. Throws Error (kEnvironment) for a card that
/// nothing is built for.
std::vector<CheckedPrecision> precisions_of(const device::CudaDevice& card);

/// What checking an operator in one precision gave.
struct OperatorCheck {
  int results = 0;   ///< compared tensors, of all cases
  double error = 0;  ///< the largest; kNotFinite for NaN, infinity or another shape
  std::vector<std::string>
      wrong;                   ///< a sentence for each result beyond the tolerance, and each case that threw
  bool device_failed = false;  ///< after an error of the device itself, which every later call would repeat

  static constexpr double kNotFinite = 1e30;
};

/// max |value - expected| / max |expected|, kNotFinite for another shape or a value that isn't finite.
double relative_error(const at::Tensor& value, const at::Tensor& expected);

/// Computes the cases of `op` on `device` in `precision`, and in fp64 on the CPU from the same rounded
/// inputs.
OperatorCheck check_operator(const std::string& op, at::Device device, const CheckedPrecision& precision);

/// The same for one case.
void check_case(const OperatorCase& one, at::Device device, const CheckedPrecision& precision,
                OperatorCheck& check);

}  // namespace lorikeet::probe
