#include "plan/spread.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lorikeet::plan {
namespace {

constexpr std::int64_t kMostSteps = 32;

Spread spread_of(const std::vector<std::int64_t>& lengths, const data::MicroOptions& options,
                 int world_size) {
  const data::Groups groups = data::group_for_ranks(lengths, options, world_size);
  std::vector<std::int64_t> tokens(groups.size(), 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g]) tokens[g] += lengths[i];
  }
  const auto ranks = data::spread_over_ranks(tokens, world_size);
  std::int64_t most = 0;
  for (const auto& own : ranks) {
    std::int64_t sum = 0;
    for (const auto& group : own) sum += group ? tokens[*group] : 0;
    most = std::max(most, sum);
  }
  const auto all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  return {static_cast<double>(ranks.front().size()), static_cast<double>(most) / static_cast<double>(all)};
}

}  // namespace

Spread spread_of_steps(const data::TokenDataset& dataset, const data::Sampler& sampler,
                       const data::MicroOptions& options, int world_size) {
  const std::int64_t steps = std::min(sampler.total_steps(), sampler.steps_in_epoch(0));
  const std::int64_t looked_at = std::min(steps, kMostSteps);
  Spread mean;
  for (std::int64_t i = 0; i < looked_at; ++i) {
    std::vector<std::int64_t> lengths;
    for (const std::size_t example : sampler.step(i * steps / looked_at).examples)
      lengths.push_back(dataset.length(example));
    const Spread one = spread_of(lengths, options, world_size);
    mean.turns += one.turns / static_cast<double>(looked_at);
    mean.busiest_share += one.busiest_share / static_cast<double>(looked_at);
  }
  return mean;
}

}  // namespace lorikeet::plan
