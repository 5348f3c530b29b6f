#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/memory_saving.h"

namespace lorikeet::plan {

/// What of a run decides its memory and can be changed.
struct Knobs {
  std::int64_t micro_tokens = 0;
  std::int64_t longest = 0;  ///< tokens of the longest row
  std::int64_t rank = 0;
  config::MemorySaving saving = {};
  int degree = 1;  ///< devices that share one copy of the base
};

/// A change that would fit.
struct Rescue {
  std::string overrides;    ///< "batch.micro_tokens=1024 training.activation_checkpointing=full"
  std::int64_t bytes = 0;   ///< of a step, by a dry run
  bool same_result = true;  ///< the run computes the same
};

/// At most `most` changes of `now` whose `need` is at most `limit`, each checked: first those after which the
/// run computes the same (smaller micro-batches, more recomputed, weights in parts on the `world_size`
/// devices, more of `offload`, smaller micro-batches with full recomputation, and with all of it), then
/// shorter rows and a smaller rank. Of each kind the smallest change that fits.
std::vector<Rescue> changes_that_fit(const Knobs& now, int world_size,
                                     const std::function<std::int64_t(const Knobs&)>& need,
                                     std::int64_t limit, const std::vector<config::Offload>& offload,
                                     std::size_t most = 3);

}  // namespace lorikeet::plan
