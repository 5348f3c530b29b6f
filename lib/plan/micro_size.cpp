#include "plan/micro_size.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lorikeet::plan {

namespace {

// How many of the shortest have so many tokens together.
std::int64_t most_within(std::vector<std::int64_t> lengths, std::int64_t tokens) {
  std::sort(lengths.begin(), lengths.end());
  std::int64_t count = 0;
  for (const std::int64_t length : lengths) {
    if (length > tokens) break;
    tokens -= length;
    ++count;
  }
  return count;
}

}  // namespace

MicroSize largest_micro_batch(const data::TokenDataset& dataset, const data::Sampler& sampler,
                              const data::MicroOptions& options) {
  MicroSize largest;
  // Every epoch has another order, and so other steps.
  const std::int64_t steps = sampler.total_steps();
  for (std::int64_t index = 0; index < steps; ++index) {
    std::int64_t tokens = 0, labels = 0, longest = 0;
    std::vector<std::int64_t> lengths;
    for (const std::size_t example : sampler.step(index).examples) {
      tokens += dataset.length(example);
      labels += dataset.label_count(example);
      longest = std::max(longest, dataset.length(example));
      lengths.push_back(dataset.length(example));
    }
    largest.longest = std::max(largest.longest, longest);
    // An example longer than the limit goes alone.
    tokens = std::min(tokens, std::max(longest, options.micro_tokens));
    if (options.micro_rows) tokens = std::min(tokens, longest * *options.micro_rows);
    std::int64_t sequences = most_within(std::move(lengths), tokens);
    if (options.micro_rows) sequences = std::min(sequences, *options.micro_rows);
    largest.sequences = std::max(largest.sequences, sequences);
    largest.tokens = std::max(largest.tokens, tokens);
    largest.label_tokens = std::max(largest.label_tokens, std::min(labels, tokens));
  }
  return largest;
}

const MicroSize& LargestMicroBatches::of(const data::MicroOptions& options) {
  const auto found = sizes_.find(options.micro_tokens);
  if (found != sizes_.end()) return found->second;
  return sizes_.emplace(options.micro_tokens, largest_micro_batch(dataset_, sampler_, options)).first->second;
}

std::vector<std::size_t> fullest_micro_batch(const data::TokenDataset& dataset,
                                             const data::MicroOptions& options) {
  std::vector<std::size_t> order(dataset.size()), chosen;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return dataset.length(a) > dataset.length(b); });
  std::int64_t tokens = 0;
  for (const std::size_t example : order) {
    const std::int64_t length = dataset.length(example);
    const bool rows_left = !options.micro_rows || std::ssize(chosen) < *options.micro_rows;
    if (!rows_left) break;
    if (!chosen.empty() && tokens + length > options.micro_tokens) continue;
    chosen.push_back(example);
    tokens += length;
  }
  return chosen;
}

}  // namespace lorikeet::plan
