#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "nn/model_shape.h"
#include "ops/dry_run.h"
#include "plan/options.h"
#include "precision/policy.h"

namespace lorikeet::recipes {

/// Which devices a plan is for: this machine's where neither a card is named nor both memory and rate are
/// told. Single figures take the place of the card's own.
struct DeviceRequest {
  std::optional<std::string> gpu;          ///< a card by name, here or not
  std::optional<double> memory_gib;        ///< that a run may take on a device
  std::optional<double> host_memory_gib;   ///< of the host, that a run may take
  std::optional<double> flops_per_second;  ///< that a device sustains in training
  std::optional<double> bandwidth_gb;      ///< GB/s that a ring over the devices reaches
  std::optional<double> price_per_hour;    ///< of one device

  /// A GPU that is told by its figures alone.
  bool by_figures() const { return !gpu && memory_gib && flops_per_second; }
};

/// The devices, and where each of their figures comes from.
struct PlannedDevice {
  plan::Machine machine;
  precision::Policy policy;
  ops::DryTarget target;
  int here = 0;                      ///< of them on this machine; 0 for cards that are only named
  std::vector<std::string> sources;  ///< a sentence a figure: measured, from a data sheet, assumed
};

/// Throws Error for a card without a data sheet, and for arithmetic that it lacks or whose rate isn't known.
/// A CPU's rate stays open, see measure_rate.
PlannedDevice planned_device(const DeviceRequest& request, const config::Settings& settings);

/// Measures what planned_device left open: a CPU's rate, with products of this model's widths. Half a second.
void measure_rate(PlannedDevice& device, const nn::ModelShape& shape);

}  // namespace lorikeet::recipes
