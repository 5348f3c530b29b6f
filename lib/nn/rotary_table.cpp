#include "nn/rotary_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "nn/batch.h"
#include "ops/take_rows.h"

namespace lorikeet::nn {
namespace {

// For each pair the share of the divided frequency in its blend: 0 where it turns often in the original
// context, 1 where it turns seldom (arXiv:2309.00071, equations 17 to 23).
std::vector<float> yarn_ramp(const RotarySpec& spec) {
  const auto pair_that_turns = [&](double times) {
    return static_cast<double>(spec.rotary_dim) *
           std::log(spec.original_max_position / (times * 2 * std::numbers::pi)) / (2 * std::log(spec.theta));
  };
  double low = pair_that_turns(spec.beta_fast), high = pair_that_turns(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rotary_dim - 1));
  if (low == high) high += 0.001;  // as transformers does
  std::vector<float> ramp;
  for (std::int64_t pair = 0; pair < spec.rotary_dim / 2; ++pair) {
    const float place = (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
    ramp.push_back(std::clamp(place, 0.0F, 1.0F));
  }
  return ramp;
}

// transformers computes the frequencies in fp32; the same order of operations gives the same last bits.
// `extension` (LongRoPE): what divides each of them.
std::vector<float> frequencies(const RotarySpec& spec, const std::vector<double>& extension) {
  const bool yarn = spec.scaling == RotarySpec::Scaling::kYarn;
  const std::vector<float> ramp = yarn ? yarn_ramp(spec) : std::vector<float>();
  std::vector<float> result;
  for (std::int64_t i = 0; i < spec.rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(spec.rotary_dim);
    const float wave = std::pow(static_cast<float>(spec.theta), exponent);
    float frequency = 1.0F / wave;
    if (spec.scaling == RotarySpec::Scaling::kProportional) {
      frequency = i / 2 < spec.rotated_pairs ? frequency / static_cast<float>(spec.factor) : 0.0F;
    } else if (spec.scaling == RotarySpec::Scaling::kLongrope) {
      frequency = 1.0F / (static_cast<float>(extension.at(static_cast<std::size_t>(i / 2))) * wave);
    } else if (yarn) {
      const float kept = 1.0F - ramp[static_cast<std::size_t>(i / 2)];
      const float divided = 1.0F / (static_cast<float>(spec.factor) * wave);
      frequency = divided * (1.0F - kept) + frequency * kept;
    } else if (spec.scaling == RotarySpec::Scaling::kLinear) {
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
    : spec_(spec), table_{at::tensor(frequencies(spec, spec.short_factor)), {}, {}} {
  if (switch_length()) long_table_ = {at::tensor(frequencies(spec, spec.long_factor)), {}, {}};
}

std::optional<std::int64_t> RotaryTable::switch_length() const {
  if (spec_.scaling != RotarySpec::Scaling::kLongrope) return std::nullopt;
  return static_cast<std::int64_t>(spec_.original_max_position);
}

bool RotaryTable::is_long(std::int64_t length) const { return switch_length() && length > *switch_length(); }

std::vector<at::Tensor> RotaryTable::tables() const {
  std::vector<at::Tensor> found;
  for (const Table* table : {&table_, &long_table_})
    if (table->cos.defined()) found.insert(found.end(), {table->cos, table->sin});
  return found;
}

const at::Tensor& RotaryTable::inverse_frequencies(std::int64_t length) const {
  return (is_long(length) ? long_table_ : table_).inverse_frequencies;
}

RotaryTable::Rows RotaryTable::rows(const Table& table, const at::Tensor& position_ids,
                                    std::int64_t positions) const {
  const at::Device device = position_ids.device();
  at::Tensor &cos = table.cos, &sin = table.sin;
  if (!cos.defined() || cos.size(0) < positions || cos.device() != device) {
    const std::int64_t count = std::max<std::int64_t>(positions, cos.defined() ? 2 * cos.size(0) : 1024);
    const at::Tensor inverse = table.inverse_frequencies.to(device);
    const at::Tensor angle = at::arange(count, inverse.options()).unsqueeze(1) * inverse.unsqueeze(0);
    cos = angle.cos();
    sin = angle.sin();
    if (spec_.attention_factor != 1) {
      cos.mul_(spec_.attention_factor);
      sin.mul_(spec_.attention_factor);
    }
  }
  return {ops::take_rows(cos, position_ids), ops::take_rows(sin, position_ids), {}};
}

// Llama 4's, and Ministral 3's.
at::Tensor RotaryTable::query_scale(const Batch& batch) const {
  if (spec_.query_beta == 0 || static_cast<double>(batch.positions) <= spec_.original_max_position) return {};
  const at::Tensor positions = batch.position_ids.to(table_.inverse_frequencies.scalar_type());
  const at::Tensor times = positions.div(spec_.original_max_position).floor();
  return times.log1p().mul(spec_.query_beta).add(1).unsqueeze(1);
}

RotaryTable::Rows RotaryTable::rows(const Batch& batch) const {
  const at::Tensor& positions = batch.position_ids;
  Rows result = rows(is_long(batch.positions) ? long_table_ : table_, positions, batch.positions);
  result.query_scale = query_scale(batch);
  if (!is_long(batch.positions)) return result;
  // No sequence's angles depend on what it is packed with.
  const auto& cu = batch.sequences.cu_seqlens;
  for (std::size_t s = 0; s + 1 < cu.size(); ++s) {
    const std::int64_t begin = cu[s], count = cu[s + 1] - begin;
    if (count == 0 || is_long(batch.length(s))) continue;
    const Rows own = rows(table_, positions.narrow(0, begin, count), *switch_length());
    result.cos.narrow(0, begin, count).copy_(own.cos);
    result.sin.narrow(0, begin, count).copy_(own.sin);
  }
  return result;
}

}  // namespace lorikeet::nn
