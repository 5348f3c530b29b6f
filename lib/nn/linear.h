#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/rotary_table.h"
#include "nn/row_order.h"
#include "nn/weights.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/lora/lora_linear.h"
#include "precision/policy.h"

namespace lorikeet::nn {

struct Batch;
struct OutputRows;
struct PassState;
class KvCache;

/// What a pass knows beside its input.
struct ForwardContext {
  const Batch& batch;
  bool training = false;                    ///< dropout acts
  std::uint64_t step = 0;                   ///< optimizer step, keys dropout masks
  KvCache* cache = nullptr;                 ///< decoding: keys and values of earlier tokens
  RotaryRows rotary;                        ///< of the batch's positions; CausalLM::context fills it
  RotaryRows local_rotary;                  ///< the same of layers with LayerRotary::kLocal
  const OutputRows* output_rows = nullptr;  ///< whose output is read; see output_rows.h
  std::shared_ptr<PassState> pass =
      nullptr;  ///< what layers leave for later ones; CausalLM::context makes it
};

/// One module of the checkpoint that holds several parts of a group, as Phi-3's qkv_proj holds q, k and v.
struct FusedModule {
  std::string name;             ///< after the block's prefix
  std::int64_t row_groups = 1;  ///< how often its rows repeat [part 0 | part 1 | ...]; see RowOrder

  /// Of `count` units of a part, those in one of the repetitions. Where that leaves a remainder, the order
  /// has fewer rows than its module, which require_valid_order refuses.
  std::int64_t per_group(std::int64_t count) const { return row_groups > 0 ? count / row_groups : 0; }
};

/// Modules that share an input: q, k, v, or one module that holds all three; o; gate, up; down.
struct GroupSpec {
  std::vector<Module> modules;
  std::int64_t in_features;
  bool bias = false;
  bool by_name_only = false;  ///< `all-linear` doesn't mean these: they get an adapter where they are named
  std::optional<ExpertSlice> slice = {};  ///< of an expert's groups

  std::int64_t out_features() const;
};

/// Where a frozen matrix [rows, cols] lies: consecutive segments of a unit.
struct MatrixPlace {
  const WeightUnit* unit = nullptr;
  std::size_t segment = 0;
  std::int64_t rows = 0, cols = 0;

  ops::FrozenMatrix of(const UnitLoan& loan) const { return loan.matrix(segment, rows, cols); }
};

/// The weight and bias of a group, declared in a unit: what every factory's groups hold. Throws Error for a
/// module whose row order doesn't have its rows.
struct GroupWeights {
  /// `plain`: numbers, whatever the policy says of linear weights.
  GroupWeights(const GroupSpec& spec, WeightUnit& unit, const precision::Policy& policy, bool plain);
  /// The concatenated bias [sum of out] or an undefined tensor.
  at::Tensor bias() const;

  MatrixPlace weight;

 private:
  std::size_t bias_segment_ = 0;
  bool has_bias_ = false;
};

/// What a group keeps for its backward beside its input; nothing where it is frozen.
struct LinearKept {
  at::Tensor low_rank;      ///< [T, sum of ranks]
  bool terms_left = false;  ///< forward left the low-rank terms to the product's reader
  at::Tensor product;       ///< [T, sum of out] before DoRA scales it; undefined without DoRA
};

/// A group of linear modules computed at once, over weights that are segments of one unit.
class LinearGroup {
 public:
  virtual ~LinearGroup() = default;
  /// x [T, in] -> [T, sum of out], modules side by side as declared, each in group order (RowOrder).
  /// `kept`, unless it is null, gets what backward needs beside the input. `left`, unless it is null, may be
  /// left low-rank terms (ops::LeftTerms). `into`, unless it is undefined, gets the result.
  virtual at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                             LinearKept* kept, ops::LeftTerms* left = nullptr,
                             const at::Tensor& into = {}) const = 0;
  /// The terms that forward left, out of what it kept: made again, since what is kept may have moved.
  virtual std::vector<ops::LowRankTerm> left_terms(const LinearKept& kept) const = 0;
  /// x's gradient, where `input_gradient` asks for it; adds the gradients of what is trainable in the group
  /// but for those that need x: where the result says so, add_a_gradients has to follow, or what
  /// ops::LeftTerms::right_gradient names. `left` and `into` as in forward, of x's gradient.
  virtual ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                            const ForwardContext& context, const LinearKept& kept,
                                            bool input_gradient, ops::LeftTerms* left = nullptr,
                                            const at::Tensor& into = {}) const = 0;
  /// The rest of a backward, with forward's x.
  virtual void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                               const ForwardContext& context) const = 0;
  /// The low-rank updates, where such a pass adds these alone to the frozen product, and their tensors are
  /// always the same: nothing with DoRA, dropout, or adapters that start from the base.
  virtual std::optional<std::vector<ops::LoraProjection>> plain_updates(
      const ForwardContext& context) const = 0;
  /// Its modules' weights and biases.
  virtual const GroupWeights& weights() const = 0;
  /// Whether anything of the group is trainable.
  virtual bool learns() const = 0;
};

/// The language-model head, fused with its loss so that logits of a whole batch never exist.
class Head {
 public:
  virtual ~Head() = default;
  /// Logits [rows, vocabulary] of hidden states [rows, D], in the policy's loss dtype.
  virtual at::Tensor logits(const at::Tensor& hidden, const UnitLoan& weights) const = 0;
  /// The sum of the negative log-likelihoods of `labels` (int64 [L]) under the hidden states [L, D], fp32
  /// scalar, and, where it is asked for, `loss_scale` times their gradient. Adds the gradients of what is
  /// trainable in the head, multiplied alike. `context` is that of the hidden states' rows.
  virtual ops::CrossEntropy loss(const at::Tensor& hidden, const at::Tensor& labels, const UnitLoan& weights,
                                 double loss_scale, const ForwardContext& context,
                                 bool hidden_gradient) const = 0;
  /// Negative log-likelihood of each label, fp32 [L].
  virtual at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& labels,
                               const UnitLoan& weights) const = 0;
  /// Whether anything of the head is trainable.
  virtual bool learns() const = 0;
};

/// What an embedding's backward needs.
struct EmbeddingKept {
  at::Tensor rows = {};  ///< [T, D]: DoRA's, before its factors
};

/// The token embedding: the stream before the first layer.
class Embedding {
 public:
  virtual ~Embedding() = default;
  /// [T, D] in the compute dtype for the batch's tokens. `kept`, unless it is null, gets what backward needs.
  virtual at::Tensor forward(const Batch& batch, const UnitLoan& weights, EmbeddingKept* kept) const = 0;
  /// Adds the gradients of what is trainable in the embedding; dy: the gradient of forward's result. To be
  /// called only where it learns.
  virtual void backward(const at::Tensor& dy, const Batch& batch, const EmbeddingKept& kept) const = 0;
  /// Whether anything of the embedding is trainable.
  virtual bool learns() const = 0;
};

/// What a family asks of its embedding.
struct EmbeddingSpec {
  std::string name;
  double scale = 1;              ///< multiplies what is looked up
  bool scale_rounded = false;    ///< to the compute dtype before it multiplies (Gemma)
  std::int64_t padding_id = -1;  ///< the id whose row gets no gradient from the lookup; -1: none
  std::string tied_head;         ///< name of the head that shares the table; empty where none does
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
  /// The embedding over `table`: the first part of a model that is asked for.
  virtual std::unique_ptr<Embedding> embedding(const EmbeddingSpec& spec, const MatrixPlace& table) = 0;
  /// A head over `table`, its own or the embedding's.
  virtual std::unique_ptr<Head> head(const HeadSpec& spec, const MatrixPlace& table) = 0;

  /// A group that never has an adapter.
  std::unique_ptr<LinearGroup> frozen(const GroupSpec& spec, WeightUnit& unit) const;
  /// The weights of such a group, as plain numbers whatever the policy says; `wide`: in its type of
  /// statistics, fp32.
  GroupWeights frozen_plain(const GroupSpec& spec, WeightUnit& unit, bool wide = false) const;

  const precision::Policy& policy() const { return policy_; }

  /// Says which modules stay numbers where the policy quantises linear weights.
  void keep_plain(std::function<bool(const std::string& module)> is_plain) {
    is_plain_ = std::move(is_plain);
  }

 protected:
  /// Whether any module of a group stays numbers. Then all of it does: a group is one matrix.
  bool stays_plain(const GroupSpec& spec) const;

  precision::Policy policy_;

 private:
  std::function<bool(const std::string& module)> is_plain_;
};

/// Declares a [rows, cols] weight of its own in `unit`.
MatrixPlace declare_matrix(const std::string& name, std::int64_t rows, std::int64_t cols, WeightUnit& unit,
                           const precision::Policy& policy);

/// A group without adapters over weights that are declared.
std::unique_ptr<LinearGroup> frozen_group(const GroupWeights& weights);

/// Frozen groups without adapters: inference, and the base of what others add.
class FrozenFactory : public LinearFactory {
 public:
  using LinearFactory::LinearFactory;
  std::unique_ptr<LinearGroup> linear(const GroupSpec& spec, WeightUnit& unit) override;
  std::unique_ptr<Embedding> embedding(const EmbeddingSpec& spec, const MatrixPlace& table) override;
  std::unique_ptr<Head> head(const HeadSpec& spec, const MatrixPlace& table) override;
};

}  // namespace lorikeet::nn
