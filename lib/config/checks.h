#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/schema.h"
#include "config/settings.h"

namespace lorikeet::config {

/// True if the field has another value than the one that puts it out of force.
bool in_force(const Exclusion::Member& member, const Settings& settings);

/// What goes beyond single fields. Of two that exclude each other (Schema::exclusions), a given one that is
/// in force puts the other's default out of force. Adds a line to `problems` for each contradiction.
/// `given` holds the names of the fields that the user set.
void settle(Settings& settings, const std::set<std::string>& given, std::vector<std::string>& problems);

}  // namespace lorikeet::config
