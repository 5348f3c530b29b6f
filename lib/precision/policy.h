#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "config/settings.h"

namespace lorikeet::precision {

/// The dtype of everything in a run. Resolved once; the only place that chooses a dtype.
/// The same on one device and on many, on CPU and GPU.
struct Policy {
  DType base_storage = DType::kBF16;    ///< frozen weights in memory
  DType compute = DType::kBF16;         ///< activations and matrix products (accumulated in fp32)
  DType adapter = DType::kF32;          ///< adapter weights that the optimizer updates
  DType optimizer_state = DType::kF32;  ///< AdamW moments
  DType gradient = DType::kF32;         ///< adapter gradients, accumulated over micro-batches
  DType reduce = DType::kF32;           ///< sums over devices
  DType loss = DType::kF32;             ///< log-softmax and the loss
  DType statistics = DType::kF32;       ///< norm statistics, attention softmax

  /// Rows of "what: dtype", in a fixed order.
  std::vector<std::pair<std::string_view, DType>> rows() const;
  /// The table as it is printed at start.
  std::string table() const;
  /// sha256 over the table: equal fingerprints mean equal numbers policy-wise.
  std::string fingerprint() const;

  bool operator==(const Policy&) const = default;
};

/// The policy of the config's `precision:` section, which has been checked when it was read.
Policy resolve(const config::PrecisionSettings& settings);

}  // namespace lorikeet::precision
