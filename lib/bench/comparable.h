#pragma once

#include <string>
#include <vector>

#include "bench/run_record.h"

namespace lorikeet::bench {

/// What keeps two runs' rates from being compared, a text each ("precision policy: 1f.. and 2c.."): program
/// version, code, libtorch, base model, data, precision policy, and every setting that changes numbers.
/// Empty: they do the same work. Devices, their number, the strategy and threads may differ.
std::vector<std::string> differences(const RunRecord& a, const RunRecord& b);

/// Throws Error (kUsage) when one of `runs` differs from the first, naming both and all that differs.
void require_comparable(const std::vector<const RunRecord*>& runs);

}  // namespace lorikeet::bench
