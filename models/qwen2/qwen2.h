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

/// Qwen2 and Qwen2.5: Llama's blocks with biases on q, k and v, and windows where `use_sliding_window` says
/// so.
nn::CausalLMSpec qwen2_spec(const JsonView& config);

/// The same decoder of other files: with a window for each layer, 0 for none; the names of its weights begin
/// with `model`, and `rope` says where its rotary settings are. Reads all that is left of `config`, and
/// finishes it.
nn::CausalLMSpec qwen2_decoder(ConfigReader& config, const DecoderSizes& sizes,
                               const std::vector<std::int64_t>& windows, const RopeKeys& rope,
                               const std::string& model);

/// The window of each layer as Qwen2 and Qwen3 give it: `sliding_window`, in the layers from
/// `max_window_layers` on or those that `layer_types` names; 0, and in all layers without
/// `use_sliding_window`: none.
std::vector<std::int64_t> read_qwen_windows(ConfigReader& config, const DecoderSizes& sizes);

}  // namespace lorikeet::models
