#pragma once

#include <filesystem>

#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// Warns where the run that `adapter` is from (its run.json) had other weights than the checkpoint `model`,
/// which `session` has opened: shapes may fit all the same. Nothing is known of adapters of other programs.
void warn_if_other_base(const std::filesystem::path& model, const std::filesystem::path& adapter,
                        const ModelSession& session);

}  // namespace lorikeet::recipes
