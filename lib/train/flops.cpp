#include "train/flops.h"

#include <algorithm>
#include <map>

namespace lorikeet::train {
namespace {

double d(std::int64_t n) { return static_cast<double>(n); }

double attention_flops(const nn::ModelShape& shape, const StepSize& size) {
  return 2.0 * d(shape.heads) * d(shape.head_dim) * d(size.attention_squares);
}

}  // namespace

AttentionSquares::AttentionSquares(const std::vector<nn::DecoderLayerSpec>& layers) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const nn::DecoderLayerSpec& layer : layers) ++counts[layer.attention.options.window];
  layers_by_window_.assign(counts.begin(), counts.end());
}

std::int64_t AttentionSquares::of(std::int64_t length) const {
  std::int64_t squares = 0;
  for (const auto& [window, layers] : layers_by_window_) {
    const std::int64_t beyond = window > 0 ? std::max<std::int64_t>(length - window, 0) : 0;
    squares += layers * (length * length - beyond * beyond);
  }
  return squares;
}

AdapterSize adapter_size(const peft::AdapterStore& store) {
  AdapterSize size{.trained = store.numel()};
  for (std::size_t i = 0; i < store.size(); ++i) {
    if (store.segment(i).frozen) size.frozen += store.segment(i).size();
  }
  return size;
}

double step_flops(const nn::ModelShape& shape, const AdapterSize& adapter, const StepSize& size) {
  const double linear = 4.0 * d(shape.layer_linear_parameters) * d(size.tokens);
  const double head = 4.0 * d(shape.hidden_size) * d(shape.vocab_size) * d(size.label_tokens);
  const double low_rank = (6.0 * d(adapter.trained) + 4.0 * d(adapter.frozen)) * d(size.tokens);
  return linear + head + low_rank + 3 * attention_flops(shape, size);
}

double recomputed_flops(const nn::ModelShape& shape, const AdapterSize& adapter, const StepSize& size) {
  const double linear = 2.0 * d(shape.layer_linear_parameters) * d(size.tokens);
  const double low_rank = 2.0 * d(adapter.trained + adapter.frozen) * d(size.tokens);
  return linear + low_rank + attention_flops(shape, size);
}

}  // namespace lorikeet::train
