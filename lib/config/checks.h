#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/settings.h"

namespace lorikeet::config {

/// What goes beyond single fields. Clears a default that a given field takes the place of (batch.global by
/// batch.global_tokens, warmup_ratio by warmup_steps) and adds a line to `problems` for each contradiction.
/// `given` holds the names of the fields that the user set.
void settle(Settings& settings, const std::set<std::string>& given, std::vector<std::string>& problems);

}  // namespace lorikeet::config
