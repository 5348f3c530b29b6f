#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lorikeet::data {

struct MicroOptions {
  std::int64_t micro_tokens = 2048;        ///< most tokens of a micro-batch; a longer example goes alone
  std::optional<std::int64_t> micro_rows;  ///< most sequences of a micro-batch (config `batch.micro`)
  /// True: best fit decreasing, fewest micro-batches. False: neighbours of the step stay together, in its
  /// order.
  bool packing = true;
};

/// Groups of positions into a step's examples: one inner vector a micro-batch.
using Groups = std::vector<std::vector<std::size_t>>;

/// Groups examples of the given `lengths` into micro-batches; nothing is cut, every position occurs once.
/// A function of its arguments alone: ties go to the lower position and the older micro-batch. Positions
/// ascend inside a group. Throws Error for limits below 1.
Groups group_examples(std::span<const std::int64_t> lengths, const MicroOptions& options);

/// The same for `world_size` ranks that work at the same time: as few turns as the limits allow, and the
/// smallest micro-batches that need no more, so that every rank gets its part of a small step too. For one
/// rank this is group_examples.
Groups group_for_ranks(std::span<const std::int64_t> lengths, const MicroOptions& options,
                       std::int64_t world_size);

/// Spreads micro-batches of the given token counts over `world_size` ranks: every rank gets the same number,
/// the least that holds them all (where there are too few, nullopt: a turn without work), and about the same
/// tokens (largest first, to the least loaded rank that has room). Deterministic; result [rank][turn] is an
/// index into `tokens`. Throws Error for a world_size below 1.
std::vector<std::vector<std::optional<std::size_t>>> spread_over_ranks(std::span<const std::int64_t> tokens,
                                                                       std::int64_t world_size);

}  // namespace lorikeet::data
