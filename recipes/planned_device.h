#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "data/token_dataset.h"
#include "ops/dry_run.h"
#include "plan/options.h"
#include "precision/policy.h"
#include "recipes/model_session.h"

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
  std::optional<double> peak_flops;  ///< of a card's data sheet in this precision
  int here = 0;                      ///< of them on this machine; 0 for cards that are only named
  std::vector<std::string> sources;  ///< a sentence a figure: measured, from a data sheet, assumed
};

/// Throws Error for a card without a data sheet, for arithmetic that it lacks or whose rate isn't known, and
/// for two of memory, rate and bandwidth that neither a card nor a GPU of this machine has the third of.
/// A rate that `request` doesn't give stays open, see settle_rate.
PlannedDevice planned_device(const DeviceRequest& request, const config::Settings& settings);

/// Whether such a device may compute all experts of a layer by one launch a product, so that its host needn't
/// learn how many rows each has (nn::LinearStack, which also goes by shapes).
bool computes_experts_at_once(const precision::Policy& policy, const ops::DryTarget& target);

/// Settles what the model decides: what a GPU's host takes to launch a layer, and the rate of this job's step
/// where planned_device left it open, a GPU's by what bounds its parts (plan/card_time.h), a CPU's by
/// products of this model's widths, which takes half a second.
void settle_rate(PlannedDevice& device, const ModelSession& session, const data::TokenDataset& rows);

}  // namespace lorikeet::recipes
