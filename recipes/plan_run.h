#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "data/load.h"
#include "plan/decision.h"
#include "plan/options.h"
#include "recipes/planned_device.h"

namespace lorikeet::recipes {

struct PlanRequest {
  config::Settings settings;
  std::string config;                  ///< the file, for the command
  std::vector<std::string> overrides;  ///< of the command line, for the command
  /// A config.json in the place of model.path's folder, which isn't there: see planned_model.
  std::optional<std::filesystem::path> published;
  DeviceRequest device;
  std::optional<int> devices;       ///< so many, beside one
  std::optional<int> most_devices;  ///< from 1 to so many; neither: those of this machine, or one of a card
};

/// What is known of the data.
struct DataFacts {
  std::string assumed;  ///< see PlannedRows
  std::int64_t examples = 0, tokens = 0, label_tokens = 0, longest = 0;
  std::int64_t steps = 0;      ///< of the whole run
  double tokens_per_step = 0;  ///< mean
  std::vector<std::pair<int, std::int64_t>>
      percentiles;  ///< (50, tokens): half the rows have at most so many
};

struct RunPlan {
  PlannedDevice device;
  std::string model;  ///< a line: parameters, bytes, and whether weights were there
  DataFacts data;
  plan::Work work;
  std::int64_t usual_micro_tokens = 0;  ///< on such a device
  std::vector<plan::Option> options;
  plan::Decision decision;           ///< points into `options`
  std::vector<std::string> command;  ///< that runs the best one; empty where nothing fits

  RunPlan() = default;
  RunPlan(const RunPlan&) = delete;
  RunPlan& operator=(const RunPlan&) = delete;
};

/// Plans a run: reads config.json, the tokenizer, the headers of the weights where there are any, and the
/// data's lengths (from the cache, or tokenising them as training would), or assumes what isn't there, see
/// plan_inputs.h. No weights are read and nothing of the model is allocated.
std::unique_ptr<RunPlan> plan_run(const PlanRequest& request);

}  // namespace lorikeet::recipes
