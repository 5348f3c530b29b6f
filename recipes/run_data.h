#pragma once

#include "config/settings.h"
#include "data/load.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// A run's training and validation data, for the model of `session`: ids given as tokens may be as large as
/// its embedding has rows. Warns where data.max_seq_len lets examples be longer than the positions that the
/// model was made for.
data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session);

}  // namespace lorikeet::recipes
