#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "data/load.h"
#include "data/sampler.h"
#include "recipes/model_session.h"
#include "recipes/phases.h"
#include "recipes/rank_group.h"
#include "recipes/run_folder.h"

namespace lorikeet::recipes {

/// What a run is made of, as it is known before a weight is read: which model on which devices, which rows in
/// which order.
struct RunInputs {
  /// Opens all of it, and holds the machine against it (preflight). Ends the phases start, open model and
  /// tokenise. All ranks call it. Throws Error for whatever isn't there or doesn't fit.
  RunInputs(const config::Settings& settings, RankGroup& group, Phases& phases);
  RunInputs(const RunInputs&) = delete;  // the sampler refers to the data
  RunInputs& operator=(const RunInputs&) = delete;

  std::vector<std::string> devices;  ///< as people call them, by rank
  ModelSession session;
  data::LoadedData data;
  std::optional<std::string> chat_template;  ///< Jinja; where rows need one
  data::Sampler sampler;
};

/// What tells this run from another one in its folder; the weights' part is added when they were read.
RunFolder::Identity identity_of(const config::Settings& settings, const RunInputs& inputs);

}  // namespace lorikeet::recipes
