#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "config/settings.h"
#include "device/device.h"
#include "precision/quantization.h"

namespace lorikeet::precision {

/// The dtype of everything in a run. Resolved once; the only place that chooses a dtype.
/// The same on one device and on many, on CPU and GPU.
struct Policy {
  DType base_storage = DType::kBF16;    ///< frozen weights in memory; see quantization
  DType compute = DType::kBF16;         ///< activations and matrix products
  DType adapter = DType::kF32;          ///< adapter weights that the optimizer updates
  DType optimizer_state = DType::kF32;  ///< AdamW moments
  DType gradient = DType::kF32;         ///< adapter gradients, accumulated over micro-batches
  DType reduce = DType::kF32;           ///< sums over devices
  DType loss = DType::kF32;             ///< log-softmax, the loss and its sum over a step
  DType statistics = DType::kF32;       ///< norm statistics, attention softmax, the gradient's norm

  /// How the weights of linear modules are stored instead; embedding, head, norms and biases stay in
  /// base_storage.
  std::optional<Quantization> quantization;
  /// How fp32 matrices are multiplied on a GPU (exactly, or with operands rounded to TF32, 10 bits), or where
  /// the config says so how 16-bit ones are on a CPU (kNative, kWidened). For 16-bit matrices kFp32 leaves it
  /// to a measurement (recipes/product_choice.h): both ways are equally accurate.
  config::Matmul matmul = config::Matmul::kFp32;
  /// Whether the loss is multiplied by a factor before backward, so that small gradients don't vanish in
  /// fp16 (train::GradientScaler).
  bool gradient_scaling = false;

  /// What products of 16-bit matrices are summed in, on any device: libraries are kept from less.
  static constexpr DType kAccumulation = DType::kF32;
  /// Counters that lie on the device.
  static constexpr DType kCount = DType::kF32;

  /// Rows of "what: how", in a fixed order.
  std::vector<std::pair<std::string_view, std::string>> rows() const;
  /// The table as it is printed at start.
  std::string table() const;
  /// sha256 over the table: equal fingerprints mean equal numbers policy-wise.
  std::string fingerprint() const;

  bool operator==(const Policy&) const = default;
};

/// Throws Error where products are asked for in fp8 and linear weights aren't stored so that they can be: in
/// fp8 with a scale for each row or matrix. For once it is known how a checkpoint is stored.
void require_products_fit(const Policy& policy);

/// The policy of the config's `precision:` section, which has been checked when it was read. Throws Error
/// for parts that contradict each other.
Policy resolve(const config::PrecisionSettings& settings);

/// The policy of computations in fp32 on a checkpoint whose tensors have these dtypes: where all are of one
/// 16-bit dtype they stay so in memory, which fp32 products take exactly, in half the space.
Policy exact_policy(const std::set<DType>& stored);

/// Throws Error, with the presets that the device is good for, where it has no fast arithmetic of a kind that
/// the policy computes in: bf16 and TF32 come with compute capability 8.0 (Ampere), fp8 with 8.9 (Ada); a CPU
/// has no TF32 and multiplies 16-bit numbers in fp32 where it can't otherwise, which gives the same. Throws
/// Error (kEnvironment) for a card before 7.5 (Turing): nothing is built for it.
void require_supported(const Policy& policy, const device::Device& device,
                       const std::vector<device::CudaDevice>& found);

}  // namespace lorikeet::precision
