#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/latent_heads/latent_layout.h"

namespace lorikeet::nn {

/// What a family calls the modules and norms of latent attention, after the block's prefix.
struct LatentNames {
  std::string q = "q_proj", q_a = "q_a_proj", q_norm = "q_a_layernorm", q_b = "q_b_proj";
  std::string kv_a = "kv_a_proj_with_mqa", kv_norm = "kv_a_layernorm", kv_b = "kv_b_proj";
};

/// What attention has beside its heads where keys and values are made of a narrow latent (multi-head latent
/// attention, DeepSeek-AI 2024, arXiv:2405.04434), and queries perhaps of another.
struct LatentSpec {
  ops::LatentLayout layout;
  std::int64_t query_rank = 0;  ///< width of the queries' latent; 0: queries are projected from the input
  std::int64_t key_value_rank = 0;
  double norm_eps = 1e-6;  ///< of the RMS norms of both latents
  LatentNames names = {};

  /// The modules that read the block's input: [q or its latent], [keys' and values' latent | shared key].
  std::vector<Module> input_modules(const std::string& prefix) const;
  /// Those that read a latent: of queries, where these have one, then of keys and values.
  std::vector<GroupSpec> inner_groups(const std::string& prefix) const;
  /// Of the first of input_modules.
  std::int64_t first_width() const { return query_rank > 0 ? query_rank : layout.query_width(); }
};

}  // namespace lorikeet::nn
