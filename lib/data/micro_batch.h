#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/packing.h"
#include "data/sampler.h"
#include "data/token_dataset.h"

namespace lorikeet::data {

/// A packed, variable-length batch of T tokens in S sequences, with all that a step needs to know about it on
/// the CPU, so that nothing has to be asked of the device. Attention never crosses a sequence.
struct MicroBatch {
  std::vector<std::int64_t> tokens;        ///< [T]
  std::vector<std::int64_t> position_ids;  ///< [T], from 0 in every sequence
  std::vector<std::int32_t> cu_seqlens;    ///< [S + 1], sequence s is [cu_seqlens[s], cu_seqlens[s + 1])
  /// [T], shifted inside each sequence: the token that follows, or kNoLabel; a sequence's last is kNoLabel.
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> label_rows;  ///< [L], ascending: the rows of `labels` that hold a target
  std::vector<std::int64_t> sample_ids;  ///< [S], indices into the data set; -1 for a filler
  std::int64_t max_seqlen = 0;           ///< longest sequence
  std::int64_t real_tokens = 0;          ///< T without the filler

  std::int64_t label_count() const { return static_cast<std::int64_t>(label_rows.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(sample_ids.size()); }
};

/// The examples at `indices` one behind the other; none makes an empty batch (T = 0, cu_seqlens {0}).
MicroBatch make_micro_batch(const TokenDataset& dataset, std::span<const std::size_t> indices);

/// One rank of those that share a step's work.
struct Share {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  /// True where all ranks have to take the same number of turns: one without work is a filler then.
  bool lockstep = false;
};

/// The micro-batches of `examples` (indices into the data set), grouped by `options`, that fall to `share`:
/// all of them for a world size of 1, perhaps none for a larger one.
std::vector<MicroBatch> make_micro_batches(const TokenDataset& dataset, std::span<const std::size_t> examples,
                                           const MicroOptions& options, const Share& share = {});

/// A micro-batch of one filler token and no label: a turn that changes nothing.
MicroBatch filler_batch();

/// Targets of a whole step: the loss's divisor, known without looking at any micro-batch.
std::int64_t step_label_count(const TokenDataset& dataset, const Step& step);
/// Tokens of a whole step.
std::int64_t step_token_count(const TokenDataset& dataset, const Step& step);

}  // namespace lorikeet::data
