#include "plan/micro_size.h"

#include <algorithm>

namespace lorikeet::plan {

MicroSize largest_micro_batch(const data::TokenDataset& dataset, const data::Sampler& sampler,
                              const data::MicroOptions& options) {
  MicroSize largest;
  const std::int64_t steps = std::min(sampler.total_steps(), sampler.steps_in_epoch(0));
  for (std::int64_t index = 0; index < steps; ++index) {
    std::int64_t tokens = 0, labels = 0, longest = 0;
    for (const std::size_t example : sampler.step(index).examples) {
      tokens += dataset.length(example);
      labels += dataset.label_count(example);
      longest = std::max(longest, dataset.length(example));
    }
    // An example longer than the limit goes alone.
    tokens = std::min(tokens, std::max(longest, options.micro_tokens));
    if (options.micro_rows) tokens = std::min(tokens, longest * *options.micro_rows);
    largest.tokens = std::max(largest.tokens, tokens);
    largest.label_tokens = std::max(largest.label_tokens, std::min(labels, tokens));
  }
  return largest;
}

}  // namespace lorikeet::plan
