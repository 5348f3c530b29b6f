#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"

namespace lorikeet::device {

/// Dense matrix-product rate of a CUDA device in floating-point operations a second, with fp32 sums, at its
/// boost clock: the vendor's data sheet for this name (as the driver gives it). Empty for a card or dtype
/// that isn't known: then no utilisation is reported.
std::optional<double> peak_flops(const std::string& device_name, DType compute);

}  // namespace lorikeet::device
