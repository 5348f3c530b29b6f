#include "nn/causal_lm.h"

#include <ATen/ATen.h>

#include "nn/batch.h"
#include "nn/output_rows.h"
#include "nn/pass_state.h"
#include "ops/autograd.h"

namespace lorikeet::nn {

CausalLM::CausalLM(const CausalLMSpec& spec, LinearFactory& factory) : spec_(spec) {
  const DType storage = factory.policy().base_storage;
  const ModelShape& shape = spec.shape;
  embedding_table_ = declare_matrix(spec.embedding_name + ".weight", shape.vocab_size, shape.hidden_size,
                                    store_.add_unit("embedding"), factory.policy());
  embedding_ = factory.embedding({.name = spec.embedding_name,
                                  .scale = spec.embedding_scale,
                                  .scale_rounded = spec.embedding_scale_rounded,
                                  .padding_id = spec.padding_id,
                                  .tied_head = shape.tied_head ? spec.head.name : ""},
                                 embedding_table_);
  if (spec.rotary) rotary_.emplace(*spec.rotary);
  if (spec.local_rotary) local_rotary_.emplace(*spec.local_rotary);
  if (spec.layer_inputs) layer_inputs_.emplace(*spec.layer_inputs, factory, store_.add_unit("layer inputs"));
  for (const DecoderLayerSpec& layer : spec.layers) {
    layers_.push_back(std::make_unique<DecoderLayer>(layer, factory, store_));
  }
  WeightUnit& last = store_.add_unit("head");
  final_norm_.emplace(spec.final_norm, last, storage);
  head_table_ = shape.tied_head ? embedding_table_
                                : declare_matrix(spec.head.name + ".weight", spec.head.vocab_size,
                                                 spec.head.hidden_size, last, factory.policy());
  head_ = factory.head(spec.head, head_table_);
}

std::vector<at::Tensor> CausalLM::rotary_tables() const {
  std::vector<at::Tensor> found;
  for (const auto* rotary : {&rotary_, &local_rotary_}) {
    if (!*rotary) continue;
    const std::vector<at::Tensor> own = (*rotary)->tables();
    found.insert(found.end(), own.begin(), own.end());
  }
  return found;
}

ForwardContext CausalLM::context(ForwardContext context) const {
  if (rotary_) context.rotary = rotary_->rows(context.batch);
  if (local_rotary_) context.local_rotary = local_rotary_->rows(context.batch);
  context.pass = std::make_shared<PassState>();
  return context;
}

ForwardContext CausalLM::of_layer(std::int64_t i, ForwardContext context) const {
  if (i + 1 < std::ssize(layers_)) context.output_rows = nullptr;
  return context;
}

std::optional<std::int64_t> CausalLM::cache_switch_length() const {
  return rotary_ ? rotary_->switch_length() : std::nullopt;
}

Hidden CausalLM::embed(const ForwardContext& context, EmbeddingKept* kept,
                       LayerInputsKept* inputs_kept) const {
  const Hidden hidden{embedding_->forward(context.batch, store_.borrow(*embedding_table_.unit), kept), {}};
  if (layer_inputs_) {
    context.pass->layer_inputs =
        layer_inputs_->forward(hidden.residual, store_.borrow(layer_inputs_->unit()), context, inputs_kept);
  }
  return hidden;
}

std::int64_t CausalLM::first_trained_layer() const {
  if (embedding_->learns() || layer_inputs_learn()) return 0;
  std::int64_t layer = 0;
  while (layer < std::ssize(layers_) && !layers_[static_cast<std::size_t>(layer)]->learns()) ++layer;
  return layer;
}

std::vector<const WeightUnit*> CausalLM::units_in_order(bool training) const {
  std::vector<const WeightUnit*> order{embedding_table_.unit};
  if (layer_inputs_) order.push_back(&layer_inputs_->unit());
  for (const auto& layer : layers_) order.push_back(&layer->unit());
  order.push_back(head_table_.unit);
  if (!training) return order;
  for (auto i = std::ssize(layers_); i-- > first_trained_layer();) {
    order.push_back(&layers_[static_cast<std::size_t>(i)]->unit());
  }
  if (layer_inputs_learn()) order.push_back(&layer_inputs_->unit());
  return order;
}

at::Tensor CausalLM::hidden_states(const ForwardContext& given, const at::Tensor& rows) const {
  ForwardContext context = this->context(given);
  std::optional<OutputRows> read;
  if (rows.defined()) context.output_rows = &read.emplace(output_rows(context.batch, rows));
  store_.expect(units_in_order(/*training=*/false));
  Hidden hidden = embed(context);
  for (std::int64_t i = 0; i < std::ssize(layers_); ++i) {
    const DecoderLayer& layer = *layers_[static_cast<std::size_t>(i)];
    hidden = layer.forward(std::move(hidden), store_.borrow(layer.unit()), of_layer(i, context), nullptr);
  }
  return final_norm_->forward(hidden, nullptr);
}

at::Tensor CausalLM::token_nll(const ForwardContext& context) const {
  const ops::WithoutAutograd no_graph;
  const at::Tensor hidden = hidden_states(context, context.batch.label_rows);
  return head_->token_nll(hidden, context.batch.labels, store_.borrow(head_unit()));
}

at::Tensor CausalLM::logits(const ForwardContext& context, const at::Tensor& rows) const {
  const ops::WithoutAutograd no_graph;
  const at::Tensor hidden = hidden_states(context, rows);
  return head_->logits(hidden, store_.borrow(head_unit()));
}

}  // namespace lorikeet::nn
