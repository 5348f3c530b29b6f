#pragma once

#include <cstdint>

#include "models/config_reader.h"
#include "nn/rotary_spec.h"

namespace lorikeet::models {

/// How a family's config.json gives its rotary settings, where that isn't as Llama's does.
struct RopeKeys {
  const char* theta = "rope_theta";               ///< top level: the base
  const char* partial = "partial_rotary_factor";  ///< top level: the rotated part of each head
  const char* also_theta = nullptr;               ///< a second name of the base, which then has to be equal
  const char* also_partial = nullptr;             ///< the same of the rotated part
  const char* layer_type = nullptr;               ///< member of `rope_parameters` with this table's numbers
  bool scaled = true;                             ///< `rope_scaling` is this table's
  bool partial_allowed = false;                   ///< else each whole head is rotated
  bool longrope_instead_of_yarn = false;  ///< transformers reads yarn as longrope there, so it is refused
  bool longrope_length_inside = false;    ///< longrope's original length may stand in its object alone
  bool query_scaling = false;             ///< yarn has `llama_4_scaling_beta`, 0 for none
  bool proportional = false;              ///< `rope_type: proportional` is known: Gemma 4's
  bool multimodal = false;  ///< `mrope_section` and `mrope_interleaved` are known; text has no use for them
  double absent_theta = 0;  ///< where the file has no base; 0: that is an error
  double absent_partial = 1;
};

/// The rotary settings of a config.json in either layout, for heads of `head_dim`:
///   transformers 4: `rope_theta`, `rope_scaling` (null or an object with `rope_type` or `type`, sometimes
///                   with `rope_theta` and `partial_rotary_factor` too)
///   transformers 5: `rope_parameters` (an object with `rope_theta`, `rope_type` and the type's own numbers)
/// Supports default, linear, llama3 and yarn scaling, and longrope and proportional where `keys` have them. A
/// file with neither layout, or with both and different numbers, or with a number that its type doesn't have,
/// is an error: a reader of one layout given the other would silently train with the wrong angles.
nn::RotarySpec read_rope(ConfigReader& config, std::int64_t head_dim, const RopeKeys& keys = {});

/// What families with latent attention multiply the scores of queries and keys by where yarn stretches the
/// context: (0.1 mscale_all_dim ln(factor) + 1)^2; 1 without yarn or where the file doesn't have
/// `mscale_all_dim`. rotary: read_rope's of the same file.
double yarn_score_factor(const ConfigReader& config, const nn::RotarySpec& rotary);

}  // namespace lorikeet::models
