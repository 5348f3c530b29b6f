#pragma once

#include <optional>

namespace lorikeet::device {

/// The newest CUDA that the installed driver runs, 13000 for 13.0; empty without a driver. Its library is
/// loaded at run time; no GPU is touched.
std::optional<int> driver_cuda_version();

}  // namespace lorikeet::device
