#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/settings.h"

namespace lorikeet::plan {

/// What one rank needs of its device's memory.
struct Need {
  std::int64_t held = 0;   ///< weights, adapter and optimizer: for certain
  std::int64_t total = 0;  ///< with all that the largest step needs, at most
};

struct StrategyInput {
  config::DistributedSettings settings;
  int world_size = 1;
  int local_size = 1;        ///< ranks of this rank's node
  int least_local_size = 1;  ///< of the node that has the fewest
  int most_local_size = 1;   ///< of the node that has the most
  /// What a rank needs when `degree` ranks share one copy of the base.
  std::function<Need(int degree)> need;
  std::optional<std::int64_t> available;  ///< least that a rank has; empty: unknown
};

struct Strategy {
  int degree = 1;                  ///< consecutive ranks that share one copy of the base
  std::string name = "replicate";  ///< or "shard", "hybrid"
  std::string reason;              ///< why, as a sentence's second half
  bool tight = false;              ///< a step may need more than there is
};

/// The strategy that the settings ask for; auto is replicate where the base fits, else the ranks of a node
/// share it. Throws Error for a degree that doesn't divide the ranks (kUsage), and, with the numbers, where
/// weights and adapter alone exceed the memory (kEnvironment).
Strategy choose_strategy(const StrategyInput& input);

}  // namespace lorikeet::plan
