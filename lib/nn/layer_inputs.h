#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/activation/activation.h"

namespace lorikeet::nn {

/// Inputs of every layer beside the stream, as Gemma 3n and Gemma 4 E2B and E4B have them: of a token and
/// layer
///   (norm(projection(embedded) / sqrt(hidden_size)) + sqrt(width) table[token]) / sqrt(2),  `width` numbers
struct LayerInputsSpec {
  std::string table;  ///< the module's name, "model.embed_tokens_per_layer"
  std::int64_t vocab_size;
  std::string projection;  ///< "model.per_layer_model_projection"
  NormSpec norm;           ///< over the `width` numbers of each layer
  std::int64_t hidden_size;
  std::int64_t layers;

  std::int64_t width() const { return norm.size; }
  GroupSpec projection_group() const { return {{{projection, layers * width()}}, hidden_size}; }
};

/// What their backward needs.
struct LayerInputsKept {
  at::Tensor embedded;
  LinearKept projection;
  NormKept norm;
};

/// The inputs of all layers, made at a pass's beginning. The table is frozen.
class LayerInputs {
 public:
  LayerInputs(const LayerInputsSpec& spec, LinearFactory& factory, WeightUnit& unit);

  /// [T, layers * width] of a batch whose tokens were embedded to [T, D]. `kept`, unless it is null, gets
  /// what backward needs.
  at::Tensor forward(const at::Tensor& embedded, const UnitLoan& weights, const ForwardContext& context,
                     LayerInputsKept* kept) const;
  /// The gradient of `embedded`, where `input_gradient` asks for it; adds that of what is trainable.
  at::Tensor backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                      const LayerInputsKept& kept, bool input_gradient) const;
  bool learns() const { return projection_->learns(); }
  const WeightUnit& unit() const { return *unit_; }

 private:
  const WeightUnit* unit_;
  std::int64_t width_;
  double projection_scale_;
  std::unique_ptr<Embedding> table_;
  std::unique_ptr<LinearGroup> projection_;
  Norm norm_;
};

/// What a layer does with its input i: the stream x becomes x + norm(projection(act(gate x) * i)).
struct LayerInputSpec {
  std::string prefix;  ///< "model.layers.0"
  std::int64_t hidden_size;
  std::int64_t width;
  ops::Activation activation = ops::Activation::kGeluTanh;
  NormSpec norm;

  GroupSpec gate_group() const { return {{{prefix + ".per_layer_input_gate", width}}, hidden_size}; }
  GroupSpec projection_group() const { return {{{prefix + ".per_layer_projection", hidden_size}}, width}; }
  std::int64_t parameters() const { return 2 * width * hidden_size; }
};

/// What its backward needs beside the layer's input.
struct LayerInputKept {
  at::Tensor x, gate;
  LinearKept gate_linear, projection_linear;
  NormKept norm;
};

class LayerInput {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in the pass's inputs.
  LayerInput(const LayerInputSpec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit);

  /// What is added to the stream x, which has the rows that the context's output rows leave. `context` is the
  /// layer's.
  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     LayerInputKept* kept) const;
  /// x's gradient through it alone, where `input_gradient` asks for it; adds that of what is trainable, and
  /// writes that of the layer's input where the pass wants it. Uses `kept` up.
  at::Tensor backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                      LayerInputKept& kept, bool input_gradient) const;
  bool learns() const { return gate_->learns() || projection_->learns(); }

 private:
  // The layer's columns of all layers' inputs.
  at::Tensor own(const at::Tensor& inputs) const { return inputs.narrow(1, layer_ * width_, width_); }
  // [R, gate | input], which the activation reads.
  at::Tensor gate_and_input(const at::Tensor& gate, const ForwardContext& context) const;

  std::int64_t layer_, width_;
  ops::Activation activation_;
  std::unique_ptr<LinearGroup> gate_, projection_;
  Norm norm_;
};

}  // namespace lorikeet::nn
