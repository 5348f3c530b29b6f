// Every block here is a tensor of lib/ops or lib/nn, named as there; scopes are those of the code, so that a
// tensor lives here as long as it does there. Tensors that don't grow with the number of tokens are left out
// where they are small: vectors, stacked adapters, panels of widened weights.
#include "plan/step_tensors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/matmul/panels.h"

namespace lorikeet::plan {
namespace {

using Block = Tape::Block;
using Bytes = std::int64_t;

constexpr Bytes kWide = 4;   // fp32
constexpr Bytes kTile = 64;  // attention's, on a CPU

// The residual stream between layers.
struct Stream {
  Block residual, delta;
};

// What a norm keeps: its input, in fp32 where it is composed, and the scale of each row.
struct NormKept {
  Block input, scale;
};

// What a linear group keeps: its input and x A^T; nothing where it has no adapter.
struct LinearKept {
  Block x, low_rank;
};

// What one layer keeps for its backward.
struct LayerKept {
  NormKept attention_norm, mlp_norm;
  LinearKept qkv, output, gate_up, down;
  Block attention_input, attended, softmax;
  Block gates, bent;  // gate and up; composed: both in fp32, and the bent gate
};

class Step {
 public:
  Step(const MemoryInput& in, Tape& tape)
      : in_(in),
        tape_(tape),
        s_(in.shape),
        tokens_(in.tokens),
        compute_(static_cast<Bytes>(dtype_size(in.policy.compute))),
        fused_(in.kernels != Kernels::kCuda),
        widened_(in.kernels == Kernels::kCpuWidened && compute_ < kWide) {}

  Bytes run() {
    const Block rotary = work(2 * s_.head_dim / 2 * kWide);
    Stream stream{kept(compute_ * s_.hidden_size), nullptr};
    std::vector<LayerKept> layers(static_cast<std::size_t>(s_.layers));
    std::vector<Stream> inputs;  // with checkpointing
    Bytes per_layer = 0;
    for (LayerKept& layer : layers) {
      if (in_.checkpointing) inputs.push_back(stream);
      stream = forward(std::move(stream), layer);
      if (per_layer == 0) per_layer = bytes_of_layer();
      if (in_.checkpointing) layer = {};
    }
    NormKept last;
    Block hidden = norm(stream, last);
    stream = {};
    Block gradient = loss();
    hidden.reset();
    gradient = norm_backward(last, nullptr, std::move(gradient));
    while (!layers.empty()) {
      LayerKept layer = std::move(layers.back());
      layers.pop_back();
      Stream recomputed;
      if (in_.checkpointing) recomputed = forward(inputs.back(), layer);
      gradient = backward(layer, std::move(gradient));
      if (in_.checkpointing) inputs.pop_back();
    }
    return per_layer;
  }

 private:
  Block kept(Bytes a_token) { return tape_.take(Part::kActivations, tokens_ * a_token); }
  Block work(Bytes a_token) { return tape_.take(Part::kWorkspace, tokens_ * a_token); }

  Bytes q() const { return s_.heads * s_.head_dim; }
  Bytes qkv() const { return (s_.heads + 2 * s_.kv_heads) * s_.head_dim; }
  Bytes columns(Group group) const { return in_.group_columns[static_cast<std::size_t>(group)]; }
  Bytes low_rank_size() const { return widened_ ? kWide : compute_; }

  // What a layer keeps, by the tensors above.
  Bytes bytes_of_layer() const {
    Bytes low_rank = 0;
    for (const Bytes c : in_.group_columns) low_rank += c;
    const Bytes norms = fused_ ? 2 * compute_ * s_.hidden_size : 2 * kWide * s_.hidden_size;
    const auto input_of = [&](Group group, Bytes width) { return columns(group) > 0 ? compute_ * width : 0; };
    const Bytes inputs = input_of(Group::kQkv, s_.hidden_size) + input_of(Group::kGateUp, s_.hidden_size) +
                         input_of(Group::kDown, s_.intermediate_size);
    const Bytes gates = (fused_ ? 2 * compute_ : 3 * kWide) * s_.intermediate_size;
    return tokens_ * (norms + inputs + gates + compute_ * (qkv() + q()) + low_rank * low_rank_size() +
                      kWide * (s_.heads + 2));
  }

  // ---- operators, forward

  // Takes the stream's sum, which stays its residual.
  Block norm(Stream& stream, NormKept& layer) {
    if (stream.delta) {
      stream.residual = kept(compute_ * s_.hidden_size);
      stream.delta.reset();
    }
    layer.scale = kept(kWide);
    if (fused_) {
      layer.input = stream.residual;
      return kept(compute_ * s_.hidden_size);
    }
    layer.input = kept(kWide * s_.hidden_size);
    { const Block squares = work(kWide * s_.hidden_size); }
    const Block scaled = work(kWide * s_.hidden_size), weighted = work(kWide * s_.hidden_size);
    return kept(compute_ * s_.hidden_size);
  }

  Block linear(const Block& x, Bytes in, Bytes out, Group group, LinearKept& layer) {
    Block result = kept(compute_ * out);
    if (columns(group) > 0) layer = {x, kept(low_rank_size() * columns(group))};
    const Block scaled = work(low_rank_size() * columns(group));
    if (widened_) {
      const Block input = work(kWide * in);
      const Block sums = work(kWide * std::min(ops::panel_rows(in), out));
    }
    return result;
  }

  Block attention(const Block& packed, LayerKept& layer) {
    layer.attention_input = packed;
    layer.attended = kept(compute_ * q());
    layer.softmax = kept(kWide * s_.heads);
    const Block scratch = attention_scratch(2 * in_.longest * s_.head_dim + in_.longest * kTile);
    return layer.attended;
  }

  // Of `floats` for each thread; a GPU's kernels keep theirs in registers.
  Block attention_scratch(Bytes floats) {
    return fused_ ? tape_.take(Part::kWorkspace, in_.threads * kWide * floats) : nullptr;
  }

  Block rotary(Block packed) {
    if (fused_) return packed;  // in place
    const Bytes turned = qkv() - s_.kv_heads * s_.head_dim;
    const Block wide = work(kWide * qkv());
    // Four products of halves, their sums, and these side by side; then with the values.
    Block parts = work(3 * kWide * turned);
    const Block rotated = work(kWide * turned);
    parts.reset();
    const Block all = work(kWide * qkv());
    return kept(compute_ * qkv());
  }

  Block gate(Block gate_up, LayerKept& layer) {
    if (fused_) {
      layer.gates = std::move(gate_up);
      return kept(compute_ * s_.intermediate_size);
    }
    layer.gates = kept(2 * kWide * s_.intermediate_size);
    layer.bent = kept(kWide * s_.intermediate_size);
    const Block product = work(kWide * s_.intermediate_size);
    return kept(compute_ * s_.intermediate_size);
  }

  // nn::DecoderLayer::forward.
  Stream forward(Stream stream, LayerKept& layer) {
    const Block normed = norm(stream, layer.attention_norm);
    const Block packed = rotary(linear(normed, s_.hidden_size, qkv(), Group::kQkv, layer.qkv));
    stream.delta = linear(attention(packed, layer), q(), s_.hidden_size, Group::kOutput, layer.output);
    const Block mlp_input = norm(stream, layer.mlp_norm);
    const Block product = gate(
        linear(mlp_input, s_.hidden_size, 2 * s_.intermediate_size, Group::kGateUp, layer.gate_up), layer);
    stream.delta = linear(product, s_.intermediate_size, s_.hidden_size, Group::kDown, layer.down);
    return stream;
  }

  // ops::linear_cross_entropy: the hidden states' gradient, made beside the logits of one chunk.
  Block loss() {
    Block gradient = work(compute_ * s_.hidden_size);
    const Block weights =
        tape_.take(Part::kWorkspace, kWide * in_.head_columns * (s_.hidden_size + s_.vocab_size));
    const Bytes rows = std::min(in_.label_tokens, in_.head_chunk_rows);
    const auto chunk = [&](Part part, Bytes a_row) { return tape_.take(part, rows * a_row); };
    const Block x = chunk(Part::kWorkspace, compute_ * s_.hidden_size);
    const Block wide = widened_ ? chunk(Part::kWorkspace, kWide * s_.hidden_size) : nullptr;
    const Block logits = chunk(Part::kLogits, (widened_ ? kWide : compute_) * s_.vocab_size);
    if (!fused_) {
      const Block scaled = chunk(Part::kLogits, kWide * s_.vocab_size);
      const Block probabilities = chunk(Part::kLogits, kWide * s_.vocab_size);
    }
    const Block dx = chunk(Part::kWorkspace, compute_ * s_.hidden_size);
    const Block sums = widened_ ? chunk(Part::kWorkspace, kWide * s_.hidden_size) : nullptr;
    return gradient;
  }

  // ---- operators, backward: each gives its node's tensors back behind it

  // `along` is the gradient that comes past the norm.
  Block norm_backward(NormKept& layer, Block along, Block gradient) {
    Block result = work(compute_ * s_.hidden_size);
    if (!fused_) {
      const Block products = work(4 * kWide * s_.hidden_size);
    }
    along.reset();
    gradient.reset();
    layer = {};
    return result;
  }

  Block linear_backward(LinearKept& layer, const Block& gradient, Bytes in, Bytes out, Group group) {
    Block dx = work(compute_ * in);
    if (columns(group) == 0) {
      const Block sums = widened_ ? work(kWide * (in + std::min(ops::panel_rows(in), out))) : nullptr;
      return dx;
    }
    const Block dy = widened_ ? work(kWide * out) : gradient;
    const Block low = work(low_rank_size() * columns(group));
    // The adapter's gradients: on a CPU the products of 16-bit numbers are summed in fp32.
    if (fused_ && compute_ < kWide) {
      const Block x = work(kWide * in);
    }
    if (widened_) {
      const Block sums = work(kWide * in);
    }
    layer = {};
    return dx;
  }

  Block attention_backward(LayerKept& layer, Block gradient) {
    Block result = work(compute_ * qkv());
    if (fused_) {
      const Block scratch = attention_scratch(5 * in_.longest * s_.head_dim);
    } else {
      // Queries' gradients in fp32, keys' and values' for each query head, and all three before they are one.
      const Block sums = work(kWide * q() + 2 * compute_ * q() + compute_ * qkv());
    }
    gradient.reset();
    layer.attention_input.reset();
    layer.attended.reset();
    layer.softmax.reset();
    return result;
  }

  Block rotary_backward(Block gradient) {
    if (fused_) return gradient;  // in place
    const Bytes turned = qkv() - s_.kv_heads * s_.head_dim;
    const Block wide = work(kWide * (qkv() + 4 * turned));
    return work(compute_ * qkv());
  }

  Block gate_backward(LayerKept& layer, Block gradient) {
    Block result = work(2 * compute_ * s_.intermediate_size);
    if (!fused_) {
      // The gradient, those of both factors, and these side by side, in fp32.
      const Block wide = work(4 * kWide * s_.intermediate_size);
    }
    gradient.reset();
    layer.gates.reset();
    layer.bent.reset();
    return result;
  }

  // `gradient` is that of the layer's delta, and of the residual beside it.
  Block backward(LayerKept& layer, Block gradient) {
    Block inner = linear_backward(layer.down, gradient, s_.intermediate_size, s_.hidden_size, Group::kDown);
    inner = gate_backward(layer, std::move(inner));
    inner = linear_backward(layer.gate_up, inner, s_.hidden_size, 2 * s_.intermediate_size, Group::kGateUp);
    gradient = norm_backward(layer.mlp_norm, std::move(gradient), std::move(inner));
    inner = linear_backward(layer.output, gradient, q(), s_.hidden_size, Group::kOutput);
    inner = rotary_backward(attention_backward(layer, std::move(inner)));
    inner = linear_backward(layer.qkv, inner, s_.hidden_size, qkv(), Group::kQkv);
    return norm_backward(layer.attention_norm, std::move(gradient), std::move(inner));
  }

  const MemoryInput& in_;
  Tape& tape_;
  const nn::ModelShape& s_;
  Bytes tokens_, compute_;
  bool fused_, widened_;
};

}  // namespace

std::int64_t run_step(const MemoryInput& input, Tape& tape) { return Step(input, tape).run(); }

}  // namespace lorikeet::plan
