#include "nn/causal_lm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/backward_signal.h"
#include "nn/batch.h"
#include "nn/checkpointing.h"
#include "ops/embedding/embedding.h"

namespace lorikeet::nn {

CausalLM::CausalLM(const CausalLMSpec& spec, LinearFactory& factory)
    : spec_(spec), compute_(factory.policy().compute) {
  const DType storage = factory.policy().base_storage;
  const ModelShape& shape = spec.shape;
  embedding_ = declare_matrix(spec.embedding_name + ".weight", shape.vocab_size, shape.hidden_size,
                              store_.add_unit("embedding"), factory.policy());
  if (spec.rotary) rotary_.emplace(*spec.rotary);
  for (const DecoderLayerSpec& layer : spec.layers) {
    layers_.push_back(std::make_unique<DecoderLayer>(layer, factory, store_));
  }
  WeightUnit& last = store_.add_unit("head");
  final_norm_.emplace(spec.final_norm, last, storage);
  head_ = shape.tied_head ? factory.tied_head(spec.head, embedding_) : factory.head(spec.head, last);
}

at::Tensor CausalLM::embed(const at::Tensor& tokens) const {
  at::Tensor embedded = ops::embedding(tokens, *embedding_, compute_);
  if (spec_.embedding_scale != 1) embedded = embedded * spec_.embedding_scale;
  return embedded;
}

at::Tensor CausalLM::hidden_states(const ForwardContext& context) const {
  const Batch& batch = context.batch;
  RotaryRows rotary;
  if (rotary_) rotary = rotary_->rows(batch.position_ids, batch.positions);
  Hidden hidden{embed(batch.tokens), {}};
  std::int64_t index = 0;
  for (const auto& layer : layers_) {
    signal_before(index++, hidden, context);
    const auto run = [&layer = *layer, rotary, context](Hidden h) {
      return layer.forward(std::move(h), rotary, context);
    };
    hidden = checkpoint_anchor_.defined() && context.training ? checkpointed(run, hidden, checkpoint_anchor_)
                                                              : run(std::move(hidden));
  }
  signal_before(index, hidden, context);
  return final_norm_->forward(hidden);
}

void CausalLM::signal_before(std::int64_t layer, Hidden& hidden, const ForwardContext& context) {
  if (layer == 0 || context.layer_done == nullptr) return;
  at::Tensor& last = hidden.delta.defined() ? hidden.delta : hidden.residual;
  last = signal_backward(last, [done = context.layer_done, layer] { (*done)(layer); });
}

at::Tensor CausalLM::loss_sum(double loss_scale, const ForwardContext& context) const {
  return head_->loss_sum(hidden_states(context), loss_scale, context);
}

at::Tensor CausalLM::token_nll(const ForwardContext& context) const {
  const at::NoGradGuard no_grad;
  return head_->token_nll(hidden_states(context), context);
}

at::Tensor CausalLM::logits(const ForwardContext& context, const at::Tensor& rows) const {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = hidden_states(context);
  return head_->logits(rows.defined() ? hidden.index_select(0, rows) : hidden);
}

}  // namespace lorikeet::nn
