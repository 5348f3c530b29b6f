#include "precision/policy.h"

#include <algorithm>

#include "base/hash.h"

namespace lorikeet::precision {
std::vector<std::pair<std::string_view, DType>> Policy::rows() const {
  return {{"frozen base", base_storage},
          {"compute", compute},
          {"adapter", adapter},
          {"optimizer state", optimizer_state},
          {"gradients", gradient},
          {"reduction", reduce},
          {"loss", loss},
          {"norm and softmax statistics", statistics}};
}

std::string Policy::table() const {
  std::size_t width = 0;
  for (const auto& [what, dtype] : rows()) width = std::max(width, what.size());
  std::string out;
  for (const auto& [what, dtype] : rows()) {
    out += "  " + std::string(what) + std::string(width - what.size() + 2, ' ') +
           std::string(dtype_name(dtype)) + "\n";
  }
  return out;
}

std::string Policy::fingerprint() const { return sha256_hex(table()); }

Policy resolve(const config::PrecisionSettings& settings) {
  Policy policy;
  if (settings.preset == config::PrecisionPreset::kFp32) {
    policy.base_storage = DType::kF32;
    policy.compute = DType::kF32;
  }
  policy.base_storage = settings.base_storage.value_or(policy.base_storage);
  policy.compute = settings.compute.value_or(policy.compute);
  policy.adapter = settings.adapter.value_or(policy.adapter);
  policy.reduce = settings.reduce.value_or(policy.reduce);
  return policy;
}

}  // namespace lorikeet::precision
