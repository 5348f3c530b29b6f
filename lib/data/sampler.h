#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_dataset.h"

namespace lorikeet::data {

struct SamplerOptions {
  /// A step's size: exactly one of the two is set (config `batch.global`, `batch.global_tokens`).
  std::optional<std::int64_t> examples_per_step;
  /// A step takes whole examples in order while they fit, and at least one.
  std::optional<std::int64_t> tokens_per_step;
  std::int64_t epochs = 1;
  /// Replaces `epochs`: the run goes over the data as often as that many steps need.
  std::optional<std::int64_t> max_steps;
  std::uint64_t seed = 42;
  bool shuffle = true;  ///< false: the data set's own order in every epoch
};

struct Step {
  std::int64_t index = 0;  ///< from 0, over the whole run
  std::int64_t epoch = 0;  ///< from 0
  bool last_of_epoch = false;
  std::vector<std::size_t> examples;  ///< indices into the data set
};

/// Which examples make up each optimizer step: a function of data, options and step number alone, so that
/// nothing of it depends on devices, packing or where a run was resumed. An epoch's last, smaller batch is a
/// step. Not thread-safe (it remembers the epoch last asked for).
class Sampler {
 public:
  /// Throws Error for an empty data set or options out of range. Copies what it needs of `dataset`.
  Sampler(const TokenDataset& dataset, SamplerOptions options);

  /// Optimizer steps of the whole run.
  std::int64_t total_steps() const { return total_steps_; }

  /// Steps of one epoch; with tokens_per_step epochs may differ, as their order does.
  std::int64_t steps_in_epoch(std::int64_t epoch) const;

  /// The number of steps before `epoch`.
  std::int64_t first_step(std::int64_t epoch) const;

  /// Step `index` in [0, total_steps()). Asking in order costs O(examples of the step); a seek costs one
  /// shuffle, with tokens_per_step one for each epoch before.
  Step step(std::int64_t index) const;

 private:
  struct Epoch {
    std::int64_t number = -1;
    std::vector<std::uint32_t> order;
    std::vector<std::size_t> step_ends;  // only with tokens_per_step
  };
  std::vector<std::uint32_t> order_of(std::int64_t epoch) const;
  const Epoch& epoch(std::int64_t number) const;

  SamplerOptions options_;
  std::size_t count_;
  std::vector<std::int32_t> lengths_;  // only with tokens_per_step
  std::int64_t total_steps_ = 0;
  mutable Epoch current_;
  mutable std::vector<std::int64_t> first_steps_{0};  // of the epochs known so far, with tokens_per_step
};

/// [0, count) in an order that `seed` and `purpose` fix; `count` below 2^32.
std::vector<std::uint32_t> seeded_order(std::size_t count, std::uint64_t seed, const std::string& purpose);

/// Splits [0, count) by `seed` into (rest, held-out) where held-out has round(fraction * count) members, at
/// least one and fewer than all; both ascending. Throws Error unless 0 < fraction < 1 and 2 <= count < 2^32.
std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> split_indices(std::size_t count,
                                                                                double fraction,
                                                                                std::uint64_t seed);

}  // namespace lorikeet::data
