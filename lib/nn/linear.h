#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "precision/policy.h"

namespace lorikeet::nn {

struct Batch;
class KvCache;

/// What a forward pass knows beside its input.
struct ForwardContext {
  const Batch& batch;
  bool training = false;     ///< adapters get gradients, dropout acts
  std::uint64_t step = 0;    ///< optimizer step, keys dropout masks
  KvCache* cache = nullptr;  ///< decoding: keys and values of earlier tokens
  /// Called during backward once decoder layer `layer`, and all behind it, have added their adapters'
  /// gradients
  /// (`layer` = the number of layers: the head has). Not called for layer 0, whose end is backward's.
  const std::function<void(std::int64_t layer)>* layer_done = nullptr;
};

/// One projection of a group.
struct Projection {
  std::string name;  ///< the checkpoint's module name, "model.layers.0.self_attn.q_proj"
  std::int64_t out_features;
};

/// How a group would be split across devices: by output (column) or by input (row).
enum class LinearRole { kColumn, kRow };

/// Projections that share an input: q, k, v; o; gate, up; down.
struct GroupSpec {
  std::vector<Projection> projections;
  std::int64_t in_features;
  bool bias = false;
  LinearRole role = LinearRole::kColumn;

  std::int64_t out_features() const;
};

/// A group of linear projections computed at once.
class LinearGroup {
 public:
  virtual ~LinearGroup() = default;
  /// x [T, in] -> [T, sum of out], projections side by side in their declared order.
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const = 0;
};

/// The language-model head, fused with its loss so that logits of a whole batch never exist.
class Head {
 public:
  virtual ~Head() = default;
  /// Logits [rows, vocabulary] of hidden states [rows, D], in the policy's loss dtype; no gradient.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// Sum of the negative log-likelihoods of `context.batch`'s labels, fp32 scalar. Backward through it yields
  /// gradients multiplied by `loss_scale`.
  virtual at::Tensor loss_sum(const at::Tensor& hidden, double loss_scale,
                              const ForwardContext& context) const = 0;
  /// Negative log-likelihood of each label, fp32 [L]; no gradient.
  virtual at::Tensor token_nll(const at::Tensor& hidden, const ForwardContext& context) const = 0;
};

/// What a family asks of its head.
struct HeadSpec {
  std::string name = "lm_head";
  std::int64_t hidden_size;
  std::int64_t vocab_size;
  double soft_cap = 0;
  double scale = 1;
};

/// Makes the linear parts of a model. A family asks for them by their checkpoint names and never learns
/// whether they are frozen, carry LoRA, or how their weight is stored.
class LinearFactory {
 public:
  explicit LinearFactory(const precision::Policy& policy) : policy_(policy) {}
  virtual ~LinearFactory() = default;

  /// A group whose weights become segments of `unit`.
  virtual std::unique_ptr<LinearGroup> linear(const GroupSpec& spec, WeightUnit& unit) = 0;
  /// A head with a weight of its own in `unit`.
  virtual std::unique_ptr<Head> head(const HeadSpec& spec, WeightUnit& unit) = 0;
  /// A head that uses the embedding's table.
  virtual std::unique_ptr<Head> tied_head(const HeadSpec& spec,
                                          std::shared_ptr<const ops::FrozenWeight> table) = 0;

  const precision::Policy& policy() const { return policy_; }

 protected:
  precision::Policy policy_;
};

/// The weight and bias of a group, declared in a unit: what every factory's groups hold.
struct GroupWeights {
  GroupWeights(const GroupSpec& spec, WeightUnit& unit, const precision::Policy& policy);
  /// The concatenated bias [sum of out] or an undefined tensor.
  at::Tensor bias() const;

  std::shared_ptr<const ops::FrozenWeight> weight;

 private:
  const WeightUnit* unit_;
  std::size_t bias_segment_ = 0;
  std::int64_t bias_size_ = 0;  // 0: none
};

/// Declares a [rows, cols] weight of its own in `unit`.
std::shared_ptr<const ops::FrozenWeight> declare_matrix(const std::string& name, std::int64_t rows,
                                                        std::int64_t cols, WeightUnit& unit,
                                                        const precision::Policy& policy);

/// Frozen groups without adapters: inference, and the base of what others add.
class FrozenFactory : public LinearFactory {
 public:
  using LinearFactory::LinearFactory;
  std::unique_ptr<LinearGroup> linear(const GroupSpec& spec, WeightUnit& unit) override;
  std::unique_ptr<Head> head(const HeadSpec& spec, WeightUnit& unit) override;
  std::unique_ptr<Head> tied_head(const HeadSpec& spec,
                                  std::shared_ptr<const ops::FrozenWeight> table) override;
};

}  // namespace lorikeet::nn
