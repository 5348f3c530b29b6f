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

// What a norm keeps: its input, which is the stream's sum, and the statistics of each row.
struct NormKept {
  Block input, statistics;
};

// What a linear group keeps: x A^T, where it has an adapter.
using LinearKept = Block;

// What one layer keeps for its backward.
struct LayerKept {
  NormKept attention_norm, mlp_norm;
  LinearKept qkv, output, up, down;
  Block packed, attended, softmax;
  Block gate_up;
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
    std::vector<Block> inputs;  // with checkpointing
    Bytes per_layer = 0;
    for (LayerKept& layer : layers) {
      stream = forward(std::move(stream), layer);
      if (per_layer == 0) per_layer = bytes_of_layer();
      if (!in_.checkpointing) continue;
      inputs.push_back(layer.attention_norm.input);
      layer = {};
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
      if (in_.checkpointing) {
        forward({std::move(inputs.back()), nullptr}, layer);
        inputs.pop_back();
      }
      gradient = backward(layer, std::move(gradient));
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
    const Bytes statistics = kWide * (s_.heads + (fused_ ? 2 : 0));
    return tokens_ * (compute_ * (2 * s_.hidden_size + qkv() + q() + 2 * s_.intermediate_size) +
                      low_rank * low_rank_size() + statistics);
  }

  // ---- operators, forward

  // Takes the stream's sum, which stays its residual.
  Block norm(Stream& stream, NormKept& layer) {
    if (stream.delta) {
      stream.residual = kept(compute_ * s_.hidden_size);
      stream.delta.reset();
    }
    layer.input = stream.residual;
    return normed(&layer);
  }

  // The norm's result; composed with its operands in fp32. Again, in backward, for nobody's statistics.
  Block normed(NormKept* layer) {
    Block result = work(compute_ * s_.hidden_size);
    Block statistics;
    if (fused_) {
      statistics = kept(kWide);
    } else {
      const Block wide = work(3 * kWide * s_.hidden_size);
    }
    if (layer != nullptr) layer->statistics = std::move(statistics);
    return result;
  }

  Block linear(Bytes in, Bytes out, Group group, LinearKept& layer) {
    Block result = kept(compute_ * out);
    if (columns(group) > 0) layer = kept(low_rank_size() * columns(group));
    const Block scaled = work(low_rank_size() * columns(group));
    if (widened_) {
      const Block input = work(kWide * in);
      const Block sums = work(kWide * std::min(ops::panel_rows(in), out));
    }
    return result;
  }

  Block attention(Block packed, LayerKept& layer) {
    layer.packed = std::move(packed);
    layer.attended = kept(compute_ * q());
    layer.softmax = kept(kWide * s_.heads);
    const Block scratch = attention_scratch(2 * in_.longest * s_.head_dim + in_.longest * kTile);
    return layer.attended;
  }

  // Of `floats` for each thread; a GPU's kernels keep theirs in registers.
  Block attention_scratch(Bytes floats) {
    return fused_ ? tape_.take(Part::kWorkspace, in_.threads * kWide * floats) : nullptr;
  }

  // In place; composed it is made beside it and copied.
  void rotate() {
    if (fused_) return;
    const Bytes turned = qkv() - s_.kv_heads * s_.head_dim;
    const Block wide = work(kWide * qkv());
    // Four products of halves, their sums, and these side by side; then with the values.
    Block parts = work(3 * kWide * turned);
    const Block rotated = work(kWide * turned);
    parts.reset();
    const Block all = work(kWide * qkv()), rounded = work(compute_ * qkv());
  }

  Block gated() {
    Block product = work(compute_ * s_.intermediate_size);
    if (!fused_) {
      const Block wide = work(4 * kWide * s_.intermediate_size);
    }
    return product;
  }

  // nn::DecoderLayer::forward.
  Stream forward(Stream stream, LayerKept& layer) {
    Block input = norm(stream, layer.attention_norm);
    Block packed = linear(s_.hidden_size, qkv(), Group::kQkv, layer.qkv);
    rotate();
    attention(std::move(packed), layer);
    stream.delta = linear(q(), s_.hidden_size, Group::kOutput, layer.output);
    input = norm(stream, layer.mlp_norm);
    layer.gate_up = linear(s_.hidden_size, 2 * s_.intermediate_size, Group::kGateUp, layer.up);
    const Block product = gated();
    stream.delta = linear(s_.intermediate_size, s_.hidden_size, Group::kDown, layer.down);
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

  // ---- operators, backward: what was kept goes where its last reader has run

  // `along` is the gradient that comes past the norm.
  Block norm_backward(NormKept& layer, Block along, Block gradient) {
    Block result = work(compute_ * s_.hidden_size);
    if (!fused_) {
      const Block graph = work(6 * kWide * s_.hidden_size);
    }
    along.reset();
    gradient.reset();
    layer = {};
    return result;
  }

  // `again` makes the group's input once more.
  template <typename Again>
  Block linear_backward(LinearKept& layer, const Block& gradient, Bytes in, Bytes out, Group group,
                        const Again& again) {
    Block dx = work(compute_ * in);
    if (columns(group) == 0) {
      const Block sums = widened_ ? work(kWide * (in + std::min(ops::panel_rows(in), out))) : nullptr;
      return dx;
    }
    const Block dy = widened_ ? work(kWide * out) : gradient;
    const Block low = work(low_rank_size() * columns(group));
    {
      const Block input = again();
      // The adapter's gradients: on a CPU the products of 16-bit numbers are summed in fp32.
      const Block wide = fused_ && compute_ < kWide ? work(kWide * in) : nullptr;
    }
    if (widened_) {
      const Block sums = work(kWide * in);
    }
    layer.reset();
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
    layer.packed.reset();
    layer.attended.reset();
    layer.softmax.reset();
    return result;
  }

  // Over gate and up; composed through a graph in fp32.
  void gated_backward() {
    if (fused_) return;
    const Block graph = work((8 * kWide + 2 * compute_) * s_.intermediate_size);
  }

  // nn::DecoderLayer::backward. `gradient` is that of the stream behind the layer.
  Block backward(LayerKept& layer, Block gradient) {
    Block inner = linear_backward(layer.down, gradient, s_.intermediate_size, s_.hidden_size, Group::kDown,
                                  [&] { return gated(); });
    gated_backward();
    inner = std::move(layer.gate_up);
    inner = linear_backward(layer.up, inner, s_.hidden_size, 2 * s_.intermediate_size, Group::kGateUp,
                            [&] { return normed(nullptr); });
    gradient = norm_backward(layer.mlp_norm, std::move(gradient), std::move(inner));
    inner = linear_backward(layer.output, gradient, q(), s_.hidden_size, Group::kOutput,
                            [&] { return layer.attended; });
    inner = attention_backward(layer, std::move(inner));
    rotate();
    inner = linear_backward(layer.qkv, inner, s_.hidden_size, qkv(), Group::kQkv,
                            [&] { return normed(nullptr); });
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
