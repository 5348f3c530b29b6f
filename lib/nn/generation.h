#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/causal_lm.h"

namespace lorikeet::nn {

struct GenerationOptions {
  std::int64_t max_new_tokens = 256;
  double temperature = 0;              ///< 0: greedy
  double top_p = 1;                    ///< nucleus sampling (Holtzman et al. 2020); 1: all tokens
  std::vector<std::int32_t> stop_ids;  ///< any of these ends a sequence and is not part of the result
  std::uint64_t seed = 0;
  std::int64_t first_prompt = 0;  ///< the index, for the random numbers, of the first of the prompts
  std::int64_t vocab_size = 0;    ///< ids from here on are never chosen (0: no limit): rows of an embedding
                                  ///< that is larger than the tokenizer
};

/// Continues every prompt (none empty), all in one batch with a KV cache. Returns the new ids of each.
/// A sampled continuation depends on (seed, index of the prompt, position) alone, the index counting from
/// `first_prompt`.
std::vector<std::vector<std::int32_t>> generate(const CausalLM& model,
                                                const std::vector<std::vector<std::int32_t>>& prompts,
                                                const GenerationOptions& options, const at::Device& device);

}  // namespace lorikeet::nn
