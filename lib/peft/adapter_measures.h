#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "peft/adapter_contents.h"

// What adapters change, and by how much two of them differ, measured by norms of scale * B A.
namespace lorikeet::peft {

/// One adapted module, or a sum over several.
struct ModuleMeasures {
  std::string name;
  std::int64_t in_features = 0, out_features = 0, rank = 0;
  double alpha = 0, scale = 0;
  double norm_a = 0, norm_b = 0;              ///< Frobenius norms of the factors
  double frobenius_norm = 0;                  ///< of scale * B A
  double spectral_norm = 0;                   ///< its largest singular value
  std::optional<double> magnitude_norm = {};  ///< of DoRA's vector
};

/// A tensor of modules_to_save.
struct SavedMeasures {
  std::string name;
  std::vector<std::int64_t> shape;
  double frobenius_norm = 0;  ///< of the whole copy: the base's part in it isn't known
};
/// By name.
std::vector<SavedMeasures> measure_saved(const AdapterContents& adapter);

/// All modules, from the largest Frobenius norm down.
std::vector<ModuleMeasures> measure(const AdapterContents& adapter);

/// Modules together: how many, and the Frobenius norm of all their updates.
struct MeasuresTotal {
  std::string name;
  std::size_t modules = 0;
  double frobenius_norm = 0;
};

/// By the last part of the names ("q_proj"), from the largest norm down.
std::vector<MeasuresTotal> totals_by_kind(const std::vector<ModuleMeasures>& modules);
/// By the first number in the names, ascending; modules without one are left out.
std::vector<MeasuresTotal> totals_by_layer(const std::vector<ModuleMeasures>& modules);
MeasuresTotal total(const std::vector<ModuleMeasures>& modules);

/// A module of both adapters: Frobenius norms of both updates and of their difference.
struct ModuleDifference {
  std::string name;
  double norm_a = 0, norm_b = 0, distance = 0;
  double inner_product = 0;
  std::optional<double> magnitude_distance = {};  ///< |a - b| / |a| of DoRA's vectors, where both have one
  bool same_values = false;                       ///< factors, scales and magnitudes are equal to the bit

  double relative_distance() const;  ///< of norm_a; 0 for two that change nothing, infinity for a norm_a of 0
  double cosine() const;             ///< NaN where a norm is 0
};

/// A key of adapter_config.json (and "dtype") whose values differ.
struct SettingDifference {
  std::string key;
  Json a, b;
};

struct AdapterDifference {
  std::vector<ModuleDifference> modules;  ///< of both, from the largest distance down
  /// Copies of modules_to_save that both have, by name; their norms are whole copies'.
  std::vector<ModuleDifference> saved;
  std::vector<std::string> only_a, only_b;
  std::vector<SettingDifference> settings;
  ModuleDifference total;  ///< over all modules, a missing one's update being zero; without `saved`

  bool same_values() const;  ///< of all modules and copies
  bool equal() const;        ///< nothing differs, the base's path included
};

/// Throws Error for a module or a copy whose weight has another shape in each.
AdapterDifference difference(const AdapterContents& a, const AdapterContents& b);

}  // namespace lorikeet::peft
