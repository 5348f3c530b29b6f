#include "device/peak_rate.h"

#include <array>
#include <string_view>

namespace lorikeet::device {
namespace {

struct Rate {
  std::string_view part;  // of the device's name
  double tflops;          // bf16 and fp16, dense, fp32 sums
};

// From NVIDIA's data sheets and architecture papers. The first entry that a name contains counts, so longer
// names stand before shorter ones.
constexpr std::array kRates = {Rate{"B200", 2250},       Rate{"H200", 989.4},     Rate{"H100 PCIe", 756},
                               Rate{"H100 NVL", 835},    Rate{"H100", 989.4},     Rate{"A100", 311.9},
                               Rate{"A10G", 70},         Rate{"A10", 125},        Rate{"A40", 149.7},
                               Rate{"L40S", 362},        Rate{"L40", 181},        Rate{"L4", 121},
                               Rate{"RTX A6000", 154.8}, Rate{"RTX 5090", 209.5}, Rate{"RTX 4090", 165.2},
                               Rate{"RTX 4080", 97.5},   Rate{"RTX 3090 Ti", 80}, Rate{"RTX 3090", 71.2},
                               Rate{"RTX 3080", 59.5},   Rate{"V100", 125},       Rate{"T4", 65}};

constexpr double kTf32Part = 0.5;  // of the 16-bit rate, on every card since TF32 exists

}  // namespace

std::optional<double> peak_flops(const std::string& device_name, DType compute, config::Matmul matmul) {
  const bool half = compute == DType::kBF16 || compute == DType::kF16;
  const bool tf32 = compute == DType::kF32 && matmul == config::Matmul::kTf32;
  if (!half && !tf32) return std::nullopt;
  for (const Rate& rate : kRates) {
    if (device_name.find(rate.part) != std::string::npos) return (tf32 ? kTf32Part : 1) * rate.tflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace lorikeet::device
