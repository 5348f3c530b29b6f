#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"
#include "config/settings.h"

namespace lorikeet::device {

/// Dense matrix-product rate of a CUDA device in floating-point operations a second, with fp32 sums, at its
/// boost clock: the vendor's data sheet for this name (as the driver gives it). `matmul` says how matrices in
/// fp32 are multiplied. Empty for a card or arithmetic that isn't known: then no utilisation is reported.
std::optional<double> peak_flops(const std::string& device_name, DType compute,
                                 config::Matmul matmul = config::Matmul::kFp32);

}  // namespace lorikeet::device
