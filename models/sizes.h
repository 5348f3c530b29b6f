#pragma once

#include <cstdint>

#include "models/config_reader.h"

namespace lorikeet::models {

/// The sizes of a decoder, as every family's config.json gives them.
struct DecoderSizes {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position = 0;
  bool tied_head = false;
  std::int64_t padding_id = -1;  ///< CausalLMSpec's
};

// Far above any real model, yet a whole model of such sizes has fewer than 2^57 parameters: no product of
// them overflows 64 bits, whatever a damaged file says.
inline constexpr std::int64_t kMostLayers = 1024;
inline constexpr std::int64_t kLargestWidth = std::int64_t{1} << 22;
inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostPositions = std::int64_t{1} << 28;

/// Where a family's head_dim comes from.
enum class HeadDim {
  kOptional,  ///< the key `head_dim`, or else hidden_size / heads
  kRequired,  ///< the key: it has nothing to do with hidden_size / heads
  kImplied,   ///< hidden_size / heads; a key that says something else is an error
};

/// Reads vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
/// num_key_value_heads (absent: as many as heads), head_dim, max_position_embeddings, tie_word_embeddings and
/// pad_token_id. A key that is absent has the number of `defaults`, where that isn't 0. Throws Error
/// naming the key for what is missing, out of range or contradicting.
DecoderSizes read_sizes(ConfigReader& config, HeadDim head_dim = HeadDim::kOptional,
                        const DecoderSizes& defaults = {});

/// Throws Error for numbers of heads or a head_dim that contradict each other.
void require_consistent(const ConfigReader& config, const DecoderSizes& sizes);

/// hidden_size / heads; throws Error where that leaves a remainder.
std::int64_t implied_head_dim(const ConfigReader& config, const DecoderSizes& sizes);

}  // namespace lorikeet::models
