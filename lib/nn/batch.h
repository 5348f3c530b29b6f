#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::nn {

/// A micro-batch on its device: sequences of different lengths packed after each other without padding.
/// All that the host has to know of it was computed on the host; nothing is asked of the device.
struct Batch {
  at::Tensor tokens;         ///< int64 [T]
  at::Tensor position_ids;   ///< int64 [T], from 0 in each sequence
  at::Tensor sample_ids;     ///< int64 [T], the data set's row of each token: keys dropout masks
  ops::Sequences sequences;  ///< bounds of the sequences; attention never crosses one
  at::Tensor label_rows;     ///< int64 [L], tokens whose hidden states predict a label, ascending
  at::Tensor labels;         ///< int64 [L], the token each of them should predict
  std::int64_t label_count = 0;
  std::int64_t positions = 0;                 ///< one more than the largest position id
  std::int64_t real_tokens = 0;               ///< without fillers
  std::vector<std::int64_t> first_positions;  ///< of each sequence; empty: all 0

  std::int64_t size() const { return tokens.size(0); }
  /// Of sequence `s`, with its tokens in earlier batches where it goes on from there (decoding).
  std::int64_t length(std::size_t s) const {
    const std::int64_t here = sequences.cu_seqlens[s + 1] - sequences.cu_seqlens[s];
    return here + (first_positions.empty() ? 0 : first_positions[s]);
  }
};

/// Packs sequences for inference: sequence s begins at position `first_positions[s]` (0 where that is empty).
/// No labels.
Batch pack_sequences(const std::vector<std::vector<std::int32_t>>& sequences,
                     const std::vector<std::int64_t>& first_positions, const at::Device& device);

}  // namespace lorikeet::nn
