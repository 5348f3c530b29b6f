#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "data/packing.h"
#include "data/sampler.h"
#include "data/token_dataset.h"

namespace lorikeet::plan {

struct MicroSize {
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  std::int64_t longest = 0;    ///< tokens of the longest row
  std::int64_t sequences = 0;  ///< the most of them; 0: as few as have the tokens
};

/// The most tokens, labels among them and sequences that a micro-batch of any step can hold: a bound from the
/// examples' lengths and `options`, without grouping a step. Goes over all steps of the run.
MicroSize largest_micro_batch(const data::TokenDataset& dataset, const data::Sampler& sampler,
                              const data::MicroOptions& options);

/// The same, computed once for each number of tokens. `dataset` and `sampler` must outlive it.
class LargestMicroBatches {
 public:
  LargestMicroBatches(const data::TokenDataset& dataset, const data::Sampler& sampler)
      : dataset_(dataset), sampler_(sampler) {}

  /// Options differ in micro_tokens alone.
  const MicroSize& of(const data::MicroOptions& options);

 private:
  const data::TokenDataset& dataset_;
  const data::Sampler& sampler_;
  std::map<std::int64_t, MicroSize> sizes_;
};

/// The examples of a micro-batch that holds as much as any can: the longest ones, while they fit.
std::vector<std::size_t> fullest_micro_batch(const data::TokenDataset& dataset,
                                             const data::MicroOptions& options);

}  // namespace lorikeet::plan
