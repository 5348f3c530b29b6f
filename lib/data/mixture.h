#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/options.h"
#include "data/token_dataset.h"
#include "data/tokenize.h"

// Which examples of tokenised sources a run sees.
namespace lorikeet::data {

/// The examples of `dataset` that `options` leave in, in its order: those of rows with min_tokens to
/// max_tokens tokens, and with remove_duplicates only the first with the same ids and labels. Counts what is
/// left out in `counts`. Throws Error when nothing is left.
TokenDataset choose_examples(const TokenDataset& dataset, const RowOptions& options, RowCounts& counts);

/// One source of a mixture, tokenised.
struct MixturePart {
  TokenDataset dataset;
  double weight = 1.0;
};

/// How often each example of each part is taken so that the parts' shares, counted as `by` says, are as their
/// weights: all alike, but for a part of them, chosen by `seed`, which are taken once more. See
/// StoppingStrategy for how large the whole is; shares in tokens are met as nearly as whole examples allow,
/// and every part gives one example at least.
std::vector<std::vector<std::int64_t>> mixture_counts(std::span<const MixturePart> parts, MixBy by,
                                                      StoppingStrategy strategy, std::uint64_t seed);

/// Gives `sink` the parts end to end, example i of part p where counts[p][i] isn't 0, a part's examples some
/// at a time; rows are counted through over all parts. Returns which of them are to be taken in which order:
/// each as often in a row as `counts` says; empty where that is each once.
std::vector<std::uint32_t> join_parts(std::span<const MixturePart> parts,
                                      const std::vector<std::vector<std::int64_t>>& counts,
                                      const TokenSink& sink);

}  // namespace lorikeet::data
