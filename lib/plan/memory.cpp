#include "plan/memory.h"

#include <algorithm>

namespace lorikeet::plan {
namespace {

using Bytes = std::int64_t;

Bytes size_of(DType dtype) { return static_cast<Bytes>(dtype_size(dtype)); }

// What one decoder layer keeps of a token for its backward.
Bytes kept_by_layer(const MemoryInput& in, double columns_per_layer) {
  const nn::ModelShape& s = in.shape;
  const Bytes q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const Bytes compute = size_of(in.policy.compute);
  const Bytes low_rank = in.native_products ? compute : size_of(DType::kF32);
  return compute * (4 * s.hidden_size             // the stream and its norm, before attention and before MLP
                    + (q + 2 * kv) + q            // q, k, v; attention's result
                    + 3 * s.intermediate_size) +  // gate, up; their product
         static_cast<Bytes>(columns_per_layer * static_cast<double>(low_rank)) +  // x A^T of each adapter
         size_of(in.policy.statistics) * (s.heads + 2);                           // softmax; two norms
}

// The widest moment of one layer's backward, for a token: the gradients of gate and up arrive, and the one of
// their input is made, beside the stream's gradient.
Bytes used_by_layer_backward(const MemoryInput& in) {
  const nn::ModelShape& s = in.shape;
  const Bytes compute = size_of(in.policy.compute);
  Bytes bytes = compute * (2 * s.intermediate_size + 2 * s.hidden_size);
  if (in.native_products) return bytes;
  const Bytes wide = size_of(DType::kF32);
  return bytes + wide * (2 * s.intermediate_size + s.hidden_size);
}

// The loss: hidden states, their gradient, and one chunk of logits with its rows of both.
Bytes used_by_loss(const MemoryInput& in) {
  const nn::ModelShape& s = in.shape;
  const Bytes compute = size_of(in.policy.compute);
  const Bytes rows = std::min(in.label_tokens, in.head_chunk_rows);
  const Bytes wide = in.native_products ? compute : size_of(DType::kF32);
  return compute * 2 * in.tokens * s.hidden_size + wide * rows * (s.vocab_size + 2 * s.hidden_size);
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> MemoryEstimate::rows() const {
  return {{"weights", weights},
          {"adapter", adapter},
          {"activations", activations},
          {"working", working},
          {"runtime", runtime}};
}

MemoryEstimate step_memory(const MemoryInput& in) {
  const nn::ModelShape& s = in.shape;
  const precision::Policy& policy = in.policy;
  const Bytes compute = size_of(policy.compute);
  MemoryEstimate out;
  out.weights = in.frozen_bytes;
  // The compute copy exists only where it differs.
  const Bytes copy = policy.compute == policy.adapter ? 0 : compute;
  out.adapter = in.adapter_parameters * (size_of(policy.adapter) + size_of(policy.gradient) +
                                         2 * size_of(policy.optimizer_state) + copy);

  const double columns =
      static_cast<double>(in.adapter_columns) / static_cast<double>(std::max<Bytes>(s.layers, 1));
  const Bytes layer = kept_by_layer(in, columns);
  const Bytes stream = 2 * compute * s.hidden_size;  // a layer's input: the stream and what is to be added
  const Bytes per_token = in.checkpointing ? s.layers * stream + layer : s.layers * layer + stream;
  out.activations = in.tokens * per_token;

  // With checkpointing no layer's activations exist yet while the loss is computed; they come with its
  // backward.
  const Bytes backward = in.tokens * used_by_layer_backward(in);
  const Bytes loss = used_by_loss(in) - (in.checkpointing ? in.tokens * layer : 0);
  out.working = std::max(backward, loss);
  out.runtime = Bytes{64} << 20;
  return out;
}

}  // namespace lorikeet::plan
