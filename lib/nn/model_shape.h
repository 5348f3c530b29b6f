#pragma once

#include <cstdint>

namespace lorikeet::nn {

/// Sizes that memory and FLOP formulas need; every family fills it.
struct ModelShape {
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;  ///< of all experts that a token passes, where there are some
  std::int64_t vocab_size = 0;
  std::int64_t max_position = 0;
  std::int64_t layer_linear_parameters = 0;  ///< of all decoder layers' projections
  std::int64_t idle_expert_parameters = 0;   ///< of these, what a token's experts leave out
  std::int64_t output_row_parameters =
      0;                            ///< that a token passes in the last layer's o and MLP (see OutputRows)
  std::int64_t state_elements = 0;  ///< of a sequence's states in all gated delta nets
  std::int64_t state_space_elements = 0;  ///< the same in all Mamba 2 layers
  bool tied_head = false;

  /// Of the layers' projections, those that a token passes.
  std::int64_t token_parameters() const { return layer_linear_parameters - idle_expert_parameters; }
};

}  // namespace lorikeet::nn
