#include "train/micro_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <utility>
#include <vector>

#include "nn/batch.h"
#include "nn/output_rows.h"
#include "nn/pass_state.h"
#include "ops/autograd.h"
#include "trace/range.h"

namespace lorikeet::train {
namespace {

// The whole pass of a micro-batch, written down: what forward does, and the same backwards.
class MicroStep {
 public:
  MicroStep(const nn::CausalLM& model, const nn::Batch& batch, const MicroStepOptions& options)
      : model_(model),
        store_(model.store()),
        options_(options),
        context_(model.context({.batch = batch, .training = true, .step = options.step})),
        label_rows_(nn::output_rows(batch, batch.label_rows)),
        first_trained_(model.first_trained_layer()),
        kept_(first_trained_, layers(), batch.size(), offload()) {
    // The output is read where a label is predicted, and nowhere else.
    context_.output_rows = &label_rows_;
    store_.expect(model.units_in_order(/*training=*/true));
  }

  at::Tensor run() {
    nn::Hidden hidden = forward();
    ops::CrossEntropy loss = head(std::move(hidden));
    if (options_.reducer != nullptr) options_.reducer->completed(layers());
    if (loss.hidden.defined()) backward(std::move(loss.hidden));
    return loss.loss;
  }

 private:
  ActivationOffload* offload() {
    if (!options_.saving.offload.activations) return nullptr;
    if (options_.offload != nullptr) return options_.offload;
    return &own_offload_.emplace(ops::HostTransfers(context_.batch.tokens.device()));
  }
  config::ActivationCheckpointing checkpointing() const { return options_.saving.checkpointing; }
  std::int64_t layers() const { return std::ssize(model_.layers()); }
  const nn::DecoderLayer& layer(std::int64_t i) const {
    return *model_.layers()[static_cast<std::size_t>(i)];
  }

  nn::ForwardContext context(std::int64_t i) const { return model_.of_layer(i, context_); }

  nn::Hidden forward() {
    const trace::Range range("forward");
    nn::Hidden hidden =
        model_.embed(context_, &kept_embedding_, model_.layer_inputs_learn() ? &kept_inputs_ : nullptr);
    for (std::int64_t i = 0; i < layers(); ++i) {
      const nn::UnitLoan weights = store_.borrow(layer(i).unit());
      // Nothing is kept below the lowest trainable tensor: backward doesn't get there.
      if (i < first_trained_) {
        hidden = layer(i).forward(std::move(hidden), weights, context(i), nullptr);
        continue;
      }
      nn::LayerKept kept;
      hidden = layer(i).forward(std::move(hidden), weights, context(i), &kept);
      nn::drop_recomputed(kept, checkpointing());
      kept_.put(i, std::move(kept));
    }
    return hidden;
  }

  // The loss, and the gradient of the stream behind the last layer, where something below is trained.
  ops::CrossEntropy head(nn::Hidden hidden) {
    const trace::Range range("head");
    const bool trained_below = first_trained_ < layers();
    nn::NormKept kept;
    at::Tensor normed = model_.final_norm().forward(hidden, trained_below ? &kept : nullptr);
    hidden = {};
    ops::CrossEntropy loss =
        model_.head().loss(normed, context_.batch.labels, store_.borrow(model_.head_unit()),
                           options_.loss_scale, nn::behind_attention(context_), trained_below);
    normed.reset();
    if (trained_below) loss.hidden = model_.final_norm().backward(loss.hidden, {}, kept);
    return loss;
  }

  void backward(at::Tensor gradient) {
    const trace::Range range("backward");
    nn::PassState& pass = *context_.pass;
    if (model_.layer_inputs_learn()) pass.layer_input_gradients = at::zeros_like(pass.layer_inputs);
    for (std::int64_t i = layers(); i-- > first_trained_;) {
      const nn::UnitLoan weights = store_.borrow(layer(i).unit());
      nn::LayerKept own = kept_.take(i);
      if (checkpointing() == config::ActivationCheckpointing::kFull)
        layer(i).forward({std::move(own.input), {}}, weights, context(i), &own);
      gradient = layer(i).backward(std::move(gradient), weights, context(i), own,
                                   i > first_trained_ || model_.embedding().learns());
      if (options_.reducer != nullptr) options_.reducer->completed(i);
    }
    if (model_.layer_inputs_learn()) {
      const nn::LayerInputs& inputs = *model_.layer_inputs();
      const at::Tensor through =
          inputs.backward(std::exchange(pass.layer_input_gradients, {}), store_.borrow(inputs.unit()),
                          context_, kept_inputs_, model_.embedding().learns());
      if (model_.embedding().learns()) gradient = gradient + through;
    }
    if (model_.embedding().learns()) model_.embedding().backward(gradient, context_.batch, kept_embedding_);
  }

  const nn::CausalLM& model_;
  const nn::WeightStore& store_;
  const MicroStepOptions& options_;
  nn::ForwardContext context_;
  nn::OutputRows label_rows_;
  std::int64_t first_trained_;
  nn::EmbeddingKept kept_embedding_;
  nn::LayerInputsKept kept_inputs_;
  std::optional<ActivationOffload> own_offload_;
  KeptLayers kept_;
};

}  // namespace

at::Tensor run_micro_step(const nn::CausalLM& model, const nn::Batch& batch,
                          const MicroStepOptions& options) {
  const ops::WithoutAutograd no_graph;
  return MicroStep(model, batch, options).run();
}

}  // namespace lorikeet::train
