#pragma once

#include <string>
#include <vector>

#include "probe/operators/gpu_tests.h"

namespace lorikeet::apps {

/// The tests as a table for people, a GPU after the other, and below it what is wrong.
std::string gpu_tests_table(const std::vector<probe::GpuTest>& tests);

}  // namespace lorikeet::apps
