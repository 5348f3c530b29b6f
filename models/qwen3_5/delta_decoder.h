#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/experts.h"

namespace lorikeet::models {

/// What the families of this decoder have otherwise.
struct DeltaDecoderForm {
  DecoderSizes sizes;                           ///< of absent keys
  bool multimodal_rope = true;                  ///< RopeKeys'
  std::optional<nn::FusedDeltaNet> fused = {};  ///< GatedDeltaNetSpec's
  std::optional<ExpertsDefaults> experts = {};  ///< in place of each MLP; with a shared expert
  std::int64_t shared_width = 0;                ///< of the shared expert, where the file doesn't say it
};

/// The decoder of Qwen 3.5 and Qwen3-Next: gated delta nets in most layers, in every fourth attention with a
/// gate behind it, norms of 1 + weight, rotation of a part of each head; MLPs, or experts with a shared one.
/// `model`: what the names of all but the head begin with. Throws Error for settings that change what the
/// model computes and aren't read.
nn::CausalLMSpec delta_decoder(ConfigReader& config, const std::string& model, const DeltaDecoderForm& form);

}  // namespace lorikeet::models
