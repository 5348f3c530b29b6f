#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/config_reader.h"
#include "models/rope.h"
#include "models/sizes.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Qwen3 (dense): Llama's blocks with an RMS norm over each head of q and k, and a head_dim of its own.
nn::CausalLMSpec qwen3_spec(const JsonView& config);

/// The same decoder of other files, as qwen2_decoder.
nn::CausalLMSpec qwen3_decoder(ConfigReader& config, const DecoderSizes& sizes,
                               const std::vector<std::int64_t>& windows, const RopeKeys& rope,
                               const std::string& model);

}  // namespace lorikeet::models
