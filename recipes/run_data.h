#pragma once

#include <optional>
#include <string>

#include "config/settings.h"
#include "data/load.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// A run's training and validation data, for the model of `session`: ids given as tokens may be as large as
/// its embedding has rows. Warns as beyond_positions and unending_answers say.
data::LoadedData load_run_data(const config::Settings& settings, const ModelSession& session);

/// What is to be said where data.max_seq_len lets examples be longer than the positions that the model was
/// made for.
std::optional<std::string> beyond_positions(const config::Settings& settings, const ModelSession& session,
                                            const data::TokenDataset& dataset);

/// What is to be said where no answer of `dataset`, the rows of `file`, teaches the model to stop: the end of
/// an answer is learnt where the template, or the row's form, puts a token that ends generation.
std::optional<std::string> unending_answers(const config::Settings& settings, const ModelSession& session,
                                            const data::TokenDataset& dataset, data::Format format,
                                            const std::string& file);

}  // namespace lorikeet::recipes
