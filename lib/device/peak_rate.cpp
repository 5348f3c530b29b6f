#include "device/peak_rate.h"

#include "device/data_sheet.h"

namespace lorikeet::device {
namespace {

constexpr double kTf32Part = 0.5;  // of the 16-bit rate, on every card since TF32 exists

}  // namespace

std::optional<double> peak_flops(const std::string& device_name, DType compute, config::Matmul matmul) {
  const bool half = compute == DType::kBF16 || compute == DType::kF16;
  const bool tf32 = compute == DType::kF32 && matmul == config::Matmul::kTf32;
  if (!half && !tf32) return std::nullopt;
  const DataSheet* sheet = find_data_sheet(device_name);
  if (sheet == nullptr) return std::nullopt;
  return (tf32 ? kTf32Part : 1) * sheet->tflops * 1e12;
}

}  // namespace lorikeet::device
