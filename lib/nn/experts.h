#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/batch.h"
#include "nn/feed_forward.h"
#include "nn/linear_stack.h"
#include "nn/mlp.h"
#include "ops/activation/activation.h"

namespace lorikeet::nn {

struct ExpertNames {
  std::string router = "gate", experts = "experts", gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// How transformers 5 holds the experts of a layer: as the parameters PREFIX.experts.gate_up_proj and
/// PREFIX.experts.down_proj, each with a matrix of every expert.
struct ExpertStacks {
  std::string prefix = {};   ///< "model.layers.0.mlp"; empty: that of the block
  bool interleaved = false;  ///< a row of gate and one of up in turn, else all of gate before those of up
  bool only = false;         ///< no version of transformers has modules for single experts
};

/// A gated MLP beside the routed experts, which every token passes.
struct SharedExpertSpec {
  std::int64_t intermediate_size;
  std::string name = "shared_expert";
  /// The module that makes the logit by whose sigmoid a token's output is multiplied; empty: there is none.
  std::string gate = "shared_expert_gate";
  MlpNames modules;
  bool by_name_only = false;                      ///< GroupSpec's
  std::optional<FusedModule> fused_gate_up = {};  ///< absent: gate and up are modules of their own
};

/// A tensor of numbers for each expert, which are added to the scores by which a token's experts are chosen,
/// and not to their weights.
struct ChoiceBias {
  std::string name;
  std::vector<std::int64_t> shape;  ///< as checkpoints have it: [count] or [1, count]
};

/// The norms of a block in which experts stand beside an MLP, the shared expert (Gemma 4): names of modules.
/// All are RMS norms over hidden_size numbers with one eps. See ExpertsBesideMlp.
struct BranchNorms {
  std::string mlp_input, mlp_output, experts_input, experts_output;
  std::string
      router_scale;  ///< a tensor [hidden_size], the weight of the router's norm times sqrt(hidden_size)
  double eps;
};

/// A mixture of experts: gated MLPs, of which each token passes a few.
struct ExpertsSpec {
  std::string prefix;  ///< "model.layers.0.mlp"
  std::int64_t hidden_size;
  std::int64_t intermediate_size;  ///< of one expert
  std::int64_t count;
  ops::RouterOptions router;
  ops::Activation activation = ops::Activation::kSilu;
  bool router_bias = false;
  bool bias = false;  ///< in the modules of experts
  ExpertStacks stacks = {};
  ExpertNames names;
  std::optional<SharedExpertSpec> shared = {};
  /// Name of a tensor [count], numbers of each expert that the router's weights are multiplied by; empty:
  /// there is none.
  std::string weight_scales = {};
  std::optional<ChoiceBias> choice_bias = {};
  bool wide_router = false;  ///< the router is held, and its logits are computed, in fp32 whatever the policy
  std::optional<BranchNorms> branch_norms = {};  ///< with a shared expert without a gate

  /// The module whose output are the experts' logits.
  Module router_module() const;
  /// What the names of all experts' modules begin with, "model.layers.0.mlp.experts.".
  std::string experts_prefix() const { return prefix + "." + names.experts + "."; }
  /// The modules that make [gate | up] of an expert.
  std::vector<Module> gate_up_modules(std::int64_t expert) const;
  Module down_module(std::int64_t expert) const;
  /// Both groups of an expert.
  GroupSpec gate_up_group(std::int64_t expert) const;
  GroupSpec down_group(std::int64_t expert) const;
  /// The shared expert and its gate's module. Only where there is a shared expert, or a gate.
  MlpSpec shared_mlp() const;
  Module shared_gate_module() const;
  /// Parameters of linear modules: all of them, and those of `experts` routed experts.
  std::int64_t parameters() const;
  std::int64_t parameters_of(std::int64_t experts) const;
};

/// The block: with its router's weights w_e, sum over a token's experts e of w_e down_e(act(gate_e x) * up_e
/// x). The router is frozen; an expert's modules, or its slices of stacked parameters, get
/// an adapter where the settings name them. The router's logits are computed in the compute dtype, unless it
/// is wide, its scores in fp32. Nothing is added to the loss to balance experts (transformers' default,
/// output_router_logits: false), and no token is dropped.
class Experts : public FeedForward {
 public:
  /// Throws Error where a token's experts are more than there are.
  Experts(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     FeedForwardKept* kept, ops::LeftTerms* left) const override;
  /// The same of a router with an input of its own, `routed_by` [T, D].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& routed_by, const UnitLoan& weights,
                     const ForwardContext& context, FeedForwardKept* kept) const;
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                FeedForwardKept& kept) const override;
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient) const override;
  /// The same of a router with an input of its own, whose gradient is `of_router` then, where
  /// `input_gradient` asks for x's.
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient, at::Tensor& of_router) const;
  void add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override;
  bool learns() const override { return up_.learns() || down_.learns(); }

 private:
  // [rows, gate | up] of the experts' rows. `kept`: of each expert's group, or null.
  at::Tensor up(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                const ops::Routing& routing, std::vector<LinearKept>* kept) const;
  at::Tensor logits(const at::Tensor& routed_by, const UnitLoan& weights) const;
  // [count], or undefined.
  at::Tensor choice_bias(const UnitLoan& weights, at::ScalarType dtype) const;
  // What the biases of experts' outputs add to the gradients of the router's weights, times the weights,
  // [T, experts of a token].
  at::Tensor of_output_biases(const at::Tensor& dy, const ops::Routing& routing) const;
  // The gradient of the router's input.
  at::Tensor through_router(const at::Tensor& weighted_gradient, const at::Tensor& logits,
                            const UnitLoan& weights, const ops::Routing& routing) const;

  std::int64_t hidden_size_, intermediate_size_;
  ops::RouterOptions options_;
  ops::Activation activation_;
  bool bias_;
  GroupWeights router_;
  const WeightUnit* unit_;
  std::optional<std::size_t> weight_scales_, choice_bias_;
  bool wide_router_;
  LinearStack up_, down_;
};

}  // namespace lorikeet::nn
