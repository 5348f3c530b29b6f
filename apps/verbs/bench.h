#pragma once

#include "apps/verbs/verbs.h"

namespace lorikeet::apps {

// The verbs of the group `bench`, which add_bench makes.
Verb add_bench_scaling(CLI::App& bench);
Verb add_bench_compare(CLI::App& bench);

}  // namespace lorikeet::apps
