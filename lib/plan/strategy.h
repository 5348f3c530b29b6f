#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/settings.h"
#include "plan/memory.h"

namespace lorikeet::plan {

struct StrategyInput {
  config::DistributedSettings settings;
  int world_size = 1;
  int local_size = 1;        ///< ranks of this rank's node
  int least_local_size = 1;  ///< of the node that has the fewest
  int most_local_size = 1;   ///< of the node that has the most
  /// What a rank needs when `degree` ranks share one copy of the base.
  std::function<MemoryEstimate(int degree)> need;
  std::optional<std::int64_t> available;  ///< least that a rank has; empty: unknown
};

struct Strategy {
  int degree = 1;                  ///< consecutive ranks that share one copy of the base
  std::string name = "replicate";  ///< or "shard", "hybrid"
  std::string reason;              ///< why, as a sentence's second half
};

/// "replicate" where each rank has a copy of the base, "shard" where all share one, "hybrid" between.
std::string strategy_name(int degree, int world_size);

/// The strategy that the settings ask for; auto is replicate where the base fits, else the ranks of a node
/// share it. Throws Error for a degree that doesn't divide the ranks (kUsage), and, with the numbers, where
/// weights and adapter alone exceed the memory (kEnvironment).
Strategy choose_strategy(const StrategyInput& input);

}  // namespace lorikeet::plan
