#include "nn/batch.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lorikeet::nn {

Batch pack_sequences(const std::vector<std::vector<std::int32_t>>& sequences,
                     const std::vector<std::int64_t>& first_positions, const at::Device& device) {
  std::vector<std::int64_t> tokens, positions, samples;
  Batch batch;
  batch.sequences.cu_seqlens = {0};
  batch.first_positions = first_positions;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::int64_t first = first_positions.empty() ? 0 : first_positions[s];
    const auto length = static_cast<std::int64_t>(sequences[s].size());
    for (std::int64_t i = 0; i < length; ++i) {
      tokens.push_back(sequences[s][static_cast<std::size_t>(i)]);
      positions.push_back(first + i);
      samples.push_back(static_cast<std::int64_t>(s));
    }
    batch.sequences.cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    batch.sequences.max_seqlen = std::max(batch.sequences.max_seqlen, length);
    batch.positions = std::max(batch.positions, first + length);
  }
  batch.real_tokens = static_cast<std::int64_t>(tokens.size());
  batch.tokens = at::tensor(tokens).to(device);
  batch.position_ids = at::tensor(positions).to(device);
  batch.sample_ids = at::tensor(samples).to(device);
  batch.sequences.cu_seqlens_device = at::tensor(batch.sequences.cu_seqlens).to(device);
  return batch;
}

}  // namespace lorikeet::nn
