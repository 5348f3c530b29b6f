#pragma once

#include "apps/verbs/verbs.h"

namespace lorikeet::apps {

// The verbs of `lorikeet adapters`.
Verb add_adapters_show(CLI::App& adapters);
Verb add_adapters_diff(CLI::App& adapters);
Verb add_adapters_average(CLI::App& adapters);
Verb add_adapters_scale(CLI::App& adapters);
Verb add_adapters_shrink(CLI::App& adapters);
Verb add_adapters_flatten(CLI::App& adapters);
Verb add_adapters_import(CLI::App& adapters);

}  // namespace lorikeet::apps
