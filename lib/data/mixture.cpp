#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>

#include "base/counted.h"
#include "base/error.h"
#include "base/hash.h"
#include "data/sampler.h"

namespace lorikeet::data {
namespace {

constexpr std::size_t kHandedOnBytes = std::size_t{1} << 20;  // joined examples at a time

std::string_view bytes_of(std::span<const std::int32_t> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Of millions of examples no two have the same by chance; a string holds it without memory of its own.
std::string digest_of(const TokenDataset& dataset, std::size_t i) {
  constexpr std::size_t kBytes = 15;
  const std::vector<std::int32_t> labels = dataset.labels(i);
  return Sha256().field(bytes_of(dataset.ids(i))).field(bytes_of(labels)).digest().substr(0, kBytes);
}

// What an example counts for in its source's share.
std::int64_t size_of(const TokenDataset& dataset, std::size_t i, MixBy by) {
  return by == MixBy::kTokens ? dataset.length(i) : 1;
}

// Takes every example `whole` times and, in the seed's order, some once more, until `target` is reached.
std::vector<std::int64_t> counts_for(const TokenDataset& dataset, double target, double all, MixBy by,
                                     std::uint64_t seed, std::size_t part) {
  const auto whole = static_cast<std::int64_t>(std::floor(target / all * (1 + 1e-12)));
  std::vector<std::int64_t> counts(dataset.size(), whole);
  double rest = target - static_cast<double>(whole) * all;
  for (const std::size_t i : seeded_order(dataset.size(), seed, "mixture/" + std::to_string(part))) {
    const auto size = static_cast<double>(size_of(dataset, i, by));
    if (rest < size / 2 && (whole > 0 || rest < target)) break;  // nearer to the target without it
    ++counts[i];
    rest -= size;
  }
  return counts;
}

}  // namespace

TokenDataset choose_examples(const TokenDataset& dataset, const RowOptions& options, RowCounts& counts) {
  if (!options.min_tokens && !options.max_tokens && !options.remove_duplicates) return dataset;
  std::vector<std::uint32_t> kept;
  std::unordered_set<std::string> seen;
  for (std::size_t begin = 0, end = 0; begin < dataset.size(); begin = end) {
    std::int64_t tokens = 0;  // of the row, which is several examples where a text was split
    for (end = begin; end < dataset.size() && dataset.source_row(end) == dataset.source_row(begin); ++end)
      tokens += dataset.length(end);
    if (tokens < options.min_tokens.value_or(0) || tokens > options.max_tokens.value_or(tokens)) {
      ++counts.other_length;
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const bool is_new = !options.remove_duplicates || seen.insert(digest_of(dataset, i)).second;
      if (is_new) {
        kept.push_back(static_cast<std::uint32_t>(i));
      } else {
        ++counts.duplicates;
      }
    }
  }
  if (kept.empty()) {
    throw Error(
        "[data.train.where] no example is left: " + counted(counts.other_length, "row has", "rows have") +
        " fewer or more tokens than min_tokens and max_tokens allow");
  }
  return dataset.subset(std::move(kept));
}

std::vector<std::vector<std::int64_t>> mixture_counts(std::span<const MixturePart> parts, MixBy by,
                                                      StoppingStrategy strategy, std::uint64_t seed) {
  std::vector<double> sizes;
  double unit = 0;  // what a weight of 1 stands for
  for (const MixturePart& part : parts) {
    double size = 0;
    for (std::size_t i = 0; i < part.dataset.size(); ++i)
      size += static_cast<double>(size_of(part.dataset, i, by));
    const double full = size / part.weight;
    const bool first = sizes.empty();
    unit = first                                           ? full
           : strategy == StoppingStrategy::kFirstExhausted ? std::min(unit, full)
                                                           : std::max(unit, full);
    sizes.push_back(size);
  }
  std::vector<std::vector<std::int64_t>> counts;
  counts.reserve(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p)
    counts.push_back(counts_for(parts[p].dataset, unit * parts[p].weight, sizes[p], by, seed, p));
  return counts;
}

std::vector<std::uint32_t> join_parts(std::span<const MixturePart> parts,
                                      const std::vector<std::vector<std::int64_t>>& counts,
                                      const TokenSink& sink) {
  std::int64_t first_row = 0;
  std::uint32_t examples = 0;
  std::vector<std::uint32_t> chosen;
  TokenRows rows;
  const auto hand_on = [&](std::size_t most) {
    if (rows.bytes() <= most) return;
    sink(rows);
    rows = {};
  };
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const TokenDataset& dataset = parts[p].dataset;
    std::int64_t last_row = -1;
    for (std::size_t i = 0; i < dataset.size(); ++i) {
      last_row = std::max(last_row, dataset.source_row(i));
      if (counts[p][i] == 0) continue;
      chosen.insert(chosen.end(), static_cast<std::size_t>(counts[p][i]), examples++);
      rows.add(dataset.ids(i), dataset.labels(i), first_row + dataset.source_row(i), 0);
      hand_on(kHandedOnBytes);
    }
    first_row += last_row + 1;
  }
  hand_on(0);
  if (chosen.size() == examples) chosen.clear();
  return chosen;
}

}  // namespace lorikeet::data
