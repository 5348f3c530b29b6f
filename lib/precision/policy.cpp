#include "precision/policy.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace lorikeet::precision {
namespace {

struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};
bool sets_half_products(config::Matmul matmul) {
  return matmul == config::Matmul::kNative || matmul == config::Matmul::kWidened;
}

DType dense_storage(config::BaseStorage storage) {
  switch (storage) {
    case config::BaseStorage::kBF16: return DType::kBF16;
    case config::BaseStorage::kF16: return DType::kF16;
    case config::BaseStorage::kF32:
    case config::BaseStorage::kNF4:
    case config::BaseStorage::kF8: break;
  }
  return DType::kF32;
}

constexpr Capability kLeast{7, 5}, kBf16From{8, 0}, kTf32From{8, 0}, kFp8From{8, 9};

}  // namespace

std::vector<std::pair<std::string_view, std::string>> Policy::rows() const {
  std::vector<std::pair<std::string_view, std::string>> rows{
      {"frozen base", std::string(dtype_name(base_storage))},
      {"compute", std::string(dtype_name(compute))},
      {"adapter", std::string(dtype_name(adapter))},
      {"optimizer state", std::string(dtype_name(optimizer_state))},
      {"gradients", std::string(dtype_name(gradient))},
      {"reduction", std::string(dtype_name(reduce))},
      {"loss", std::string(dtype_name(loss))},
      {"norm and softmax statistics", std::string(dtype_name(statistics))},
      {"products of fp32", matmul == config::Matmul::kTf32 ? "tf32" : "fp32"},
      {"sums of 16-bit products", std::string(dtype_name(kAccumulation))},
      {"gradient scaling", gradient_scaling ? "dynamic" : "none"}};
  if (quantization) rows.emplace_back("frozen linear weights", describe(*quantization));
  // Only where the config says it: tables, and so fingerprints, of other runs stay as older versions made
  // them.
  if (sets_half_products(matmul))
    rows.emplace_back("products of 16 bits", matmul == config::Matmul::kNative ? "native" : "widened");
  if (matmul == config::Matmul::kFp8)
    rows.emplace_back("forward products of frozen weights", "fp8, activations with a scale for each row");
  return rows;
}

std::string Policy::table() const {
  std::size_t width = 0;
  for (const auto& [what, how] : rows()) width = std::max(width, what.size());
  std::string out;
  for (const auto& [what, how] : rows()) {
    out += "  " + std::string(what) + std::string(width - what.size() + 2, ' ') + std::string(how) + "\n";
  }
  return out;
}

std::string Policy::fingerprint() const { return sha256_hex(table()); }

Policy resolve(const config::PrecisionSettings& settings) {
  Policy policy;
  switch (settings.preset) {
    case config::PrecisionPreset::kBf16: break;
    case config::PrecisionPreset::kTf32: policy.matmul = config::Matmul::kTf32; [[fallthrough]];
    case config::PrecisionPreset::kFp32: policy.base_storage = policy.compute = DType::kF32; break;
    case config::PrecisionPreset::kFp16: policy.base_storage = policy.compute = DType::kF16; break;
  }
  if (settings.base_storage == config::BaseStorage::kNF4) {
    policy.quantization = FourBits{};
  } else if (settings.base_storage == config::BaseStorage::kF8) {
    policy.quantization = Float8{};
  } else if (settings.base_storage) {
    policy.base_storage = dense_storage(*settings.base_storage);
  }
  policy.compute = settings.compute.value_or(policy.compute);
  if (settings.adapter) policy.adapter = policy.optimizer_state = policy.gradient = *settings.adapter;
  policy.reduce = settings.reduce.value_or(policy.reduce);
  policy.matmul = settings.matmul.value_or(policy.matmul);
  policy.gradient_scaling = policy.compute == DType::kF16;
  if (policy.matmul == config::Matmul::kTf32 && policy.compute != DType::kF32) {
    throw Error("[precision] TF32 is a way to multiply fp32 matrices, but precision.compute is " +
                std::string(dtype_name(policy.compute)) + "; set it to fp32, or leave precision.matmul out");
  }
  if (sets_half_products(policy.matmul) && dtype_size(policy.compute) != 2) {
    throw Error("[precision] precision.matmul=" +
                std::string(policy.matmul == config::Matmul::kNative ? "native" : "widened") +
                " is a way to multiply 16-bit matrices, but precision.compute is " +
                std::string(dtype_name(policy.compute)) +
                "; set it to bf16 or fp16, or leave precision.matmul out");
  }
  if (policy.matmul == config::Matmul::kFp8 && policy.compute != DType::kBF16) {
    throw Error("[precision] precision.matmul=fp8 gives bf16 numbers, but precision.compute is " +
                std::string(dtype_name(policy.compute)) + "; set it to bf16, or leave precision.matmul out");
  }
  return policy;
}

Policy exact_policy(const std::set<DType>& stored) {
  config::PrecisionSettings settings{.preset = config::PrecisionPreset::kFp32};
  if (stored == std::set{DType::kBF16}) settings.base_storage = config::BaseStorage::kBF16;
  if (stored == std::set{DType::kF16}) settings.base_storage = config::BaseStorage::kF16;
  return resolve(settings);
}

void require_products_fit(const Policy& policy) {
  if (policy.matmul != config::Matmul::kFp8) return;
  const auto* how = policy.quantization ? std::get_if<Float8>(&*policy.quantization) : nullptr;
  if (how != nullptr && how->block_cols == 0 && how->block_rows <= 1) return;
  const std::string stored =
      policy.quantization ? describe(*policy.quantization) : std::string(dtype_name(policy.base_storage));
  throw Error(
      "[precision] precision.matmul=fp8 is for weights in fp8 with a scale for each row or matrix, but "
      "linear "
      "weights are stored in " +
      stored +
      "; set precision.base_storage to fp8 for an unquantised checkpoint, or leave precision.matmul out");
}

void require_supported(const Policy& policy, const device::Device& device,
                       const std::vector<device::CudaDevice>& found) {
  const bool tf32 = policy.matmul == config::Matmul::kTf32;
  if (!device.is_cuda()) {
    if (tf32) {
      throw Error("[precision] a CPU has no TF32; choose precision.preset=fp32 (exact) or bf16 (faster)");
    }
    return;
  }
  if (policy.matmul == config::Matmul::kWidened) {
    throw Error("[precision] precision.matmul=widened is for CPUs, but the device is " + device.name() +
                ", which multiplies 16-bit matrices natively; leave precision.matmul out");
  }
  const device::CudaDevice& card = found.at(static_cast<std::size_t>(device.index));
  const Capability capability{card.capability_major, card.capability_minor};
  const auto of_capability = [&] {
    return device.name() + ", " + card.name + " of compute capability " + std::to_string(capability.major) +
           "." + std::to_string(capability.minor) + ",";
  };
  if (capability < kLeast) {
    throw Error("[device] " + of_capability() +
                    " is older than Turing (7.5), the first that libtorch's kernels and " +
                    "Lorikeet's are built for; use another card, or device=cpu",
                ErrorKind::kEnvironment);
  }
  std::string missing;
  if (policy.compute == DType::kBF16 && capability < kBf16From) missing = "bf16";
  if (tf32 && capability < kTf32From) missing = "TF32";
  const bool float8 = policy.matmul == config::Matmul::kFp8;
  if (float8 && missing.empty() && capability < kFp8From) {
    throw Error(
        "[precision] " + of_capability() +
        " has no fp8 arithmetic; leave precision.matmul out: weights in fp8 are multiplied as bf16 numbers "
        "then");
  }
  if (missing.empty()) return;
  throw Error(
      "[precision] " + of_capability() + " has no fast " + missing +
      "; choose precision.preset=fp16 (as fast; gradients are scaled) or precision.preset=fp32 (exact, "
      "several times slower)");
}

}  // namespace lorikeet::precision
