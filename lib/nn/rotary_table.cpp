#include "nn/rotary_table.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/take_rows.h"

namespace lorikeet::nn {
namespace {

// transformers computes the frequencies in fp32; the same order of operations gives the same last bits.
std::vector<float> frequencies(const RotarySpec& spec) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < spec.rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(spec.rotary_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(spec.theta), exponent);
    if (spec.scaling == RotarySpec::Scaling::kLinear) {
      frequency = static_cast<float>(frequency / spec.factor);
    } else if (spec.scaling == RotarySpec::Scaling::kLlama3) {
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      const double low_wavelength = spec.original_max_position / spec.low_freq_factor;
      const double high_wavelength = spec.original_max_position / spec.high_freq_factor;
      if (wavelength > low_wavelength) {
        frequency = static_cast<float>(frequency / spec.factor);
      } else if (wavelength >= high_wavelength) {
        const double smooth = (spec.original_max_position / wavelength - spec.low_freq_factor) /
                              (spec.high_freq_factor - spec.low_freq_factor);
        frequency = static_cast<float>((1 - smooth) * frequency / spec.factor + smooth * frequency);
      }
    }
    result.push_back(frequency);
  }
  return result;
}

}  // namespace

RotaryTable::RotaryTable(const RotarySpec& spec)
    : spec_(spec), inverse_frequencies_(at::tensor(frequencies(spec))) {}

RotaryTable::Rows RotaryTable::rows(const at::Tensor& position_ids, std::int64_t positions) const {
  const at::NoGradGuard no_grad;
  const at::Device device = position_ids.device();
  if (!cos_.defined() || cos_.size(0) < positions || cos_.device() != device) {
    const std::int64_t count = std::max<std::int64_t>(positions, cos_.defined() ? 2 * cos_.size(0) : 1024);
    const at::Tensor inverse = inverse_frequencies_.to(device);
    const at::Tensor angle = at::arange(count, inverse.options()).unsqueeze(1) * inverse.unsqueeze(0);
    cos_ = angle.cos();
    sin_ = angle.sin();
  }
  return {ops::take_rows(cos_, position_ids), ops::take_rows(sin_, position_ids)};
}

}  // namespace lorikeet::nn
