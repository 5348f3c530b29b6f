#include "data/micro_batch.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"

namespace lorikeet::data {

MicroBatch make_micro_batch(const TokenDataset& dataset, std::span<const std::size_t> indices) {
  std::int64_t total = 0;
  for (const std::size_t i : indices) total += dataset.length(i);
  if (total > std::numeric_limits<std::int32_t>::max())
    throw Error("[data] a micro-batch of " + std::to_string(total) + " tokens; lower batch.micro_tokens");
  MicroBatch batch;
  batch.real_tokens = total;
  batch.tokens.reserve(static_cast<std::size_t>(total));
  batch.position_ids.reserve(static_cast<std::size_t>(total));
  batch.labels.reserve(static_cast<std::size_t>(total));
  batch.cu_seqlens.reserve(indices.size() + 1);
  batch.cu_seqlens.push_back(0);
  for (const std::size_t i : indices) {
    const auto ids = dataset.ids(i);
    const auto labels = dataset.labels(i);
    const auto length = static_cast<std::int64_t>(ids.size());
    batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end());
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int32_t label = t + 1 < length ? labels[static_cast<std::size_t>(t + 1)] : kNoLabel;
      if (label != kNoLabel) batch.label_rows.push_back(static_cast<std::int64_t>(batch.labels.size()));
      batch.labels.push_back(label);
      batch.position_ids.push_back(t);
    }
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.sample_ids.push_back(static_cast<std::int64_t>(i));
    batch.max_seqlen = std::max(batch.max_seqlen, length);
  }
  return batch;
}

std::vector<MicroBatch> make_micro_batches(const TokenDataset& dataset, std::span<const std::size_t> examples,
                                           const MicroOptions& options, const Share& share) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(examples.size());
  for (const std::size_t i : examples) lengths.push_back(dataset.length(i));
  Groups groups = group_for_ranks(lengths, options, share.world_size);
  std::vector<std::int64_t> sizes;
  for (std::vector<std::size_t>& group : groups) {
    std::int64_t size = 0;
    for (std::size_t& position : group) {
      size += lengths[position];
      position = examples[position];
    }
    sizes.push_back(size);
  }
  std::vector<MicroBatch> batches;
  if (share.world_size == 1) {
    for (const auto& group : groups) batches.push_back(make_micro_batch(dataset, group));
    return batches;
  }
  const auto spread = spread_over_ranks(sizes, share.world_size);
  for (const auto& turn : spread.at(static_cast<std::size_t>(share.rank))) {
    if (turn) {
      batches.push_back(make_micro_batch(dataset, groups[*turn]));
    } else if (share.lockstep) {
      batches.push_back(filler_batch());
    }
  }
  return batches;
}

MicroBatch filler_batch() {
  return {.tokens = {0},
          .position_ids = {0},
          .cu_seqlens = {0, 1},
          .labels = {kNoLabel},
          .label_rows = {},
          .sample_ids = {-1},
          .max_seqlen = 1};
}

std::int64_t step_token_count(const TokenDataset& dataset, const Step& step) {
  std::int64_t total = 0;
  for (const std::size_t i : step.examples) total += dataset.length(i);
  return total;
}

std::int64_t step_label_count(const TokenDataset& dataset, const Step& step) {
  std::int64_t total = 0;
  for (const std::size_t i : step.examples) total += dataset.label_count(i);
  return total;
}

}  // namespace lorikeet::data
