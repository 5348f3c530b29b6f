#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"

namespace lorikeet::data {
namespace {

// Positions by falling size; equal sizes keep their order.
std::vector<std::size_t> largest_first(std::span<const std::int64_t> sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

Groups in_order(std::span<const std::int64_t> lengths, const MicroOptions& options, std::size_t most_rows) {
  Groups groups;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (groups.empty() || groups.back().size() >= most_rows || tokens + lengths[i] > options.micro_tokens) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(i);
    tokens += lengths[i];
  }
  return groups;
}

Groups best_fit_decreasing(std::span<const std::int64_t> lengths, const MicroOptions& options,
                           std::size_t most_rows) {
  Groups groups;
  std::set<std::pair<std::int64_t, std::size_t>> open;  // (room left, group), of groups that take more rows
  for (const std::size_t i : largest_first(lengths)) {
    const auto fit = open.lower_bound({lengths[i], 0});
    std::size_t group = groups.size();
    std::int64_t room = options.micro_tokens;
    if (fit == open.end()) {
      groups.emplace_back();
    } else {
      std::tie(room, group) = *fit;
      open.erase(fit);
    }
    groups[group].push_back(i);
    room -= lengths[i];
    if (room >= 0 && groups[group].size() < most_rows) open.emplace(room, group);
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

}  // namespace

Groups group_examples(std::span<const std::int64_t> lengths, const MicroOptions& options) {
  if (options.micro_tokens < 1) throw Error("[batch.micro_tokens] expected at least 1");
  if (options.micro_rows && *options.micro_rows < 1) throw Error("[batch.micro] expected at least 1");
  const std::size_t most_rows = options.micro_rows ? static_cast<std::size_t>(*options.micro_rows) : SIZE_MAX;
  return options.packing ? best_fit_decreasing(lengths, options, most_rows)
                         : in_order(lengths, options, most_rows);
}

Groups group_for_ranks(std::span<const std::int64_t> lengths, const MicroOptions& options,
                       std::int64_t world_size) {
  Groups groups = group_examples(lengths, options);
  if (world_size <= 1 || lengths.empty()) return groups;
  const auto ranks = static_cast<std::size_t>(world_size);
  const auto turns = [&](const Groups& g) { return (g.size() + ranks - 1) / ranks; };
  const std::size_t least_turns = turns(groups);
  // More groups never harm as long as they need no more turns: bisect for the smallest limit.
  std::int64_t low = 1, high = options.micro_tokens;
  while (low < high) {
    MicroOptions tried = options;
    tried.micro_tokens = low + (high - low) / 2;
    Groups found = group_examples(lengths, tried);
    if (turns(found) <= least_turns) {
      high = tried.micro_tokens;
      groups = std::move(found);
    } else {
      low = tried.micro_tokens + 1;
    }
  }
  return groups;
}

std::vector<std::vector<std::optional<std::size_t>>> spread_over_ranks(std::span<const std::int64_t> tokens,
                                                                       std::int64_t world_size) {
  if (world_size < 1) throw Error("[data] expected a world size of at least 1");
  const auto ranks = static_cast<std::size_t>(world_size);
  const std::size_t turns = (tokens.size() + ranks - 1) / ranks;
  std::vector<std::vector<std::optional<std::size_t>>> spread(ranks);
  std::set<std::pair<std::int64_t, std::size_t>> with_room;  // (tokens so far, rank)
  for (std::size_t rank = 0; rank < ranks; ++rank) with_room.emplace(0, rank);
  for (const std::size_t i : largest_first(tokens)) {
    const auto [load, rank] = *with_room.begin();
    with_room.erase(with_room.begin());
    spread[rank].emplace_back(i);
    if (spread[rank].size() < turns) with_room.emplace(load + tokens[i], rank);
  }
  for (auto& own : spread) own.resize(turns);
  return spread;
}

}  // namespace lorikeet::data
