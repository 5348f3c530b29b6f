#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rotary_table.h"
#include "ops/attention/attention.h"
#include "ops/gated_mlp/gated_mlp.h"

namespace lorikeet::nn {

/// Rotary rows of the current batch, computed once for all layers; undefined where a model has no rotary.
using RotaryRows = std::optional<RotaryTable::Rows>;

/// What a family calls its projections, after the block's prefix.
struct AttentionNames {
  std::string q = "q_proj", k = "k_proj", v = "v_proj", output = "o_proj";
};

struct AttentionSpec {
  std::string prefix;  ///< "model.layers.0.self_attn"
  std::int64_t hidden_size;
  ops::HeadLayout layout;
  bool qkv_bias = false;
  bool output_bias = false;
  ops::AttentionOptions options;  ///< scale, window, soft-cap
  AttentionNames names;
};

/// Attention-in: projections to queries, keys and values and their rotation.
class AttentionIn {
 public:
  AttentionIn(const AttentionSpec& spec, LinearFactory& factory, WeightUnit& unit);
  /// normed [T, D] -> [T, (heads + 2 kv_heads) * head_dim], rotated.
  at::Tensor forward(const at::Tensor& normed, const RotaryRows& rotary, const ForwardContext& context) const;

 private:
  ops::HeadLayout layout_;
  std::unique_ptr<LinearGroup> qkv_;
};

/// Attention-out: attention over each sequence (with the cache's keys when decoding) and the output
/// projection.
class AttentionOut {
 public:
  AttentionOut(const AttentionSpec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit);
  /// qkv as AttentionIn gives it -> [T, D].
  at::Tensor forward(const at::Tensor& qkv, const ForwardContext& context) const;

 private:
  at::Tensor cached(const at::Tensor& qkv, const ForwardContext& context) const;

  std::int64_t layer_;
  ops::HeadLayout layout_;
  ops::AttentionOptions options_;
  std::unique_ptr<LinearGroup> out_;
};

struct MlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

struct MlpSpec {
  std::string prefix;  ///< "model.layers.0.mlp"
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  ops::Activation activation = ops::Activation::kSilu;
  bool bias = false;
  MlpNames names;
};

/// Gated MLP: down(act(gate x) * up x).
class GatedMlp {
 public:
  GatedMlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit);
  /// normed [T, D] -> [T, D].
  at::Tensor forward(const at::Tensor& normed, const ForwardContext& context) const;

 private:
  ops::Activation activation_;
  std::unique_ptr<LinearGroup> gate_up_;
  std::unique_ptr<LinearGroup> down_;
};

}  // namespace lorikeet::nn
