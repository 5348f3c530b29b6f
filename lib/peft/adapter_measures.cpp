#include "peft/adapter_measures.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::peft {
namespace {

double frobenius(const LowRankUpdate& update) { return singular_values(update).norm().item<double>(); }

double length(const at::Tensor& values) { return values.norm().item<double>(); }

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void add(MeasuresTotal& total, const ModuleMeasures& module) {
  ++total.modules;
  total.frobenius_norm = std::hypot(total.frobenius_norm, module.frobenius_norm);
}

ModuleDifference difference_of(const std::string& name, const AdapterModule& a, const AdapterModule& b) {
  const LowRankUpdate &x = a.update, &y = b.update;
  if (x.in_features() != y.in_features() || x.out_features() != y.out_features() ||
      a.is_embedding != b.is_embedding) {
    throw Error("[adapters] expected adapters of one base model, got module '" + escape_control(name) +
                "' with weights of two shapes");
  }
  ModuleDifference result{.name = name, .norm_a = frobenius(x), .norm_b = frobenius(y)};
  result.inner_product = inner_product(x, y);
  const bool same_factors = x.scale == y.scale && at::equal(x.a, y.a) && at::equal(x.b, y.b);
  const bool same_magnitudes = a.magnitude.defined() == b.magnitude.defined() &&
                               (!a.magnitude.defined() || at::equal(a.magnitude, b.magnitude));
  result.same_values = same_factors && same_magnitudes;
  result.distance = same_factors ? 0 : frobenius(weighted_sum({x, y}, {1, -1}));
  if (a.magnitude.defined() && b.magnitude.defined())
    result.magnitude_distance = length(a.magnitude - b.magnitude) / length(a.magnitude);
  return result;
}

ModuleDifference saved_difference(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    throw Error("[adapters] expected adapters of one base model, got '" + escape_control(name) +
                "' of modules_to_save in two shapes");
  }
  return {.name = name,
          .norm_a = length(a),
          .norm_b = length(b),
          .distance = length(a - b),
          .inner_product = (a * b).sum().item<double>(),
          .same_values = at::equal(a, b)};
}

std::vector<SettingDifference> setting_differences(const AdapterContents& a, const AdapterContents& b) {
  const auto settings = [](const AdapterContents& contents) {
    Json json = written_json(contents);
    json.set("dtype", std::string(dtype_name(contents.dtype)));
    return json;
  };
  const Json ours = settings(a), theirs = settings(b);
  std::vector<SettingDifference> differences;
  for (const auto& [key, value] : ours.object()) {
    const Json* other = theirs.find(key);
    if (other == nullptr) {
      differences.push_back({key, value, Json()});
    } else if (value.dump() != other->dump()) {
      differences.push_back({key, value, *other});
    }
  }
  for (const auto& [key, value] : theirs.object()) {
    if (ours.find(key) == nullptr) differences.push_back({key, Json(), value});
  }
  return differences;
}

}  // namespace

std::vector<SavedMeasures> measure_saved(const AdapterContents& adapter) {
  std::vector<SavedMeasures> measures;
  for (const auto& [name, value] : adapter.saved)
    measures.push_back({.name = name, .shape = value.sizes().vec(), .frobenius_norm = length(value)});
  return measures;
}

std::vector<ModuleMeasures> measure(const AdapterContents& adapter) {
  std::vector<ModuleMeasures> measures;
  for (const auto& [name, module] : adapter.modules) {
    const LowRankUpdate& update = module.update;
    const at::Tensor values = singular_values(update);
    measures.push_back({.name = name,
                        .in_features = update.in_features(),
                        .out_features = update.out_features(),
                        .rank = update.rank(),
                        .alpha = module.alpha,
                        .scale = update.scale,
                        .norm_a = length(update.a),
                        .norm_b = length(update.b),
                        .frobenius_norm = length(values),
                        .spectral_norm = values[0].item<double>()});
    if (module.magnitude.defined()) measures.back().magnitude_norm = length(module.magnitude);
  }
  std::stable_sort(measures.begin(), measures.end(),
                   [](const auto& x, const auto& y) { return x.frobenius_norm > y.frobenius_norm; });
  return measures;
}

std::vector<MeasuresTotal> totals_by_kind(const std::vector<ModuleMeasures>& modules) {
  std::map<std::string, MeasuresTotal> kinds;
  for (const ModuleMeasures& module : modules) add(kinds[last_part(module.name)], module);
  std::vector<MeasuresTotal> totals;
  for (auto& [kind, sum] : kinds) totals.push_back({kind, sum.modules, sum.frobenius_norm});
  std::stable_sort(totals.begin(), totals.end(),
                   [](const auto& x, const auto& y) { return x.frobenius_norm > y.frobenius_norm; });
  return totals;
}

std::vector<MeasuresTotal> totals_by_layer(const std::vector<ModuleMeasures>& modules) {
  std::map<int, MeasuresTotal> layers;
  for (const ModuleMeasures& module : modules) {
    const std::vector<std::string> parts = split(module.name, '.');
    const auto number = std::find_if(parts.begin(), parts.end(), is_number);
    if (number != parts.end()) add(layers[std::stoi(*number)], module);
  }
  std::vector<MeasuresTotal> totals;
  for (auto& [layer, sum] : layers)
    totals.push_back({std::to_string(layer), sum.modules, sum.frobenius_norm});
  return totals;
}

MeasuresTotal total(const std::vector<ModuleMeasures>& modules) {
  MeasuresTotal sum{.name = "total"};
  for (const ModuleMeasures& module : modules) add(sum, module);
  return sum;
}

double ModuleDifference::relative_distance() const {
  if (distance == 0) return 0;
  return norm_a > 0 ? distance / norm_a : std::numeric_limits<double>::infinity();
}

double ModuleDifference::cosine() const {
  if (norm_a == 0 || norm_b == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(inner_product / (norm_a * norm_b), -1.0, 1.0);
}

bool AdapterDifference::same_values() const {
  return total.same_values &&
         std::all_of(saved.begin(), saved.end(), [](const ModuleDifference& one) { return one.same_values; });
}

bool AdapterDifference::equal() const {
  return only_a.empty() && only_b.empty() && settings.empty() && same_values();
}

AdapterDifference difference(const AdapterContents& a, const AdapterContents& b) {
  AdapterDifference result;
  ModuleDifference& sum = result.total;
  sum.name = "total";
  sum.same_values = true;
  const auto add_to_sum = [&](const ModuleDifference& one) {
    sum.norm_a = std::hypot(sum.norm_a, one.norm_a);
    sum.norm_b = std::hypot(sum.norm_b, one.norm_b);
    sum.distance = std::hypot(sum.distance, one.distance);
    sum.inner_product += one.inner_product;
    sum.same_values = sum.same_values && one.same_values;
  };
  for (const auto& [name, module] : a.modules) {
    const auto other = b.modules.find(name);
    if (other == b.modules.end()) {
      result.only_a.push_back(name);
      const double own = frobenius(module.update);
      add_to_sum({.name = name, .norm_a = own, .distance = own});
    } else {
      result.modules.push_back(difference_of(name, module, other->second));
      add_to_sum(result.modules.back());
    }
  }
  for (const auto& [name, module] : b.modules) {
    if (a.modules.contains(name)) continue;
    result.only_b.push_back(name);
    const double own = frobenius(module.update);
    add_to_sum({.name = name, .norm_b = own, .distance = own});
  }
  for (const auto& [name, value] : a.saved) {
    const auto other = b.saved.find(name);
    if (other == b.saved.end()) {
      result.only_a.push_back(name);
    } else {
      result.saved.push_back(saved_difference(name, value, other->second));
    }
  }
  for (const auto& [name, value] : b.saved) {
    if (!a.saved.contains(name)) result.only_b.push_back(name);
  }
  std::stable_sort(result.modules.begin(), result.modules.end(),
                   [](const auto& x, const auto& y) { return x.distance > y.distance; });
  result.settings = setting_differences(a, b);
  return result;
}

}  // namespace lorikeet::peft
