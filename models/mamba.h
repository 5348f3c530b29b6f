#pragma once

#include "models/config_reader.h"
#include "models/sizes.h"
#include "nn/mamba2.h"

namespace lorikeet::models {

/// The Mamba 2 layers of a family by the keys that Bamba and Granite 4 H have: mamba_n_heads, mamba_d_head (a
/// number or "auto"), mamba_n_groups, mamba_d_state, mamba_d_conv, mamba_expand, mamba_conv_bias,
/// mamba_proj_bias; an absent one is transformers' default. Each group's part of the layer's output is normed
/// by itself. The spec has no prefix yet. Throws Error naming the key for what doesn't fit, and for a
/// `time_step_limit` that limits.
nn::Mamba2Spec read_mamba2(ConfigReader& config, const DecoderSizes& sizes, double norm_eps);

}  // namespace lorikeet::models
