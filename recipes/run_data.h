#pragma once

#include <cstdint>

#include "config/settings.h"
#include "data/load.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// A run's training and validation data, for the model of `session`: ids given as tokens may be as large as
/// its embedding has rows. Warns as warn_beyond_positions does, and where no answer teaches the model to
/// stop.
data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session);

/// Warns where data.max_seq_len lets examples, whose longest has `longest` tokens, be longer than the
/// positions that the model was made for.
void warn_beyond_positions(const config::Settings& settings, const ModelSession& session,
                           std::int64_t longest);

}  // namespace lorikeet::recipes
