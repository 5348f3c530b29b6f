#include "train/flops.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace lorikeet::train {
namespace {

double d(std::int64_t n) { return static_cast<double>(n); }

double attention_flops(const nn::ModelShape& shape, const StepSize& size) {
  return 2.0 * d(shape.heads) * d(shape.head_dim) * d(size.attention_squares);
}

std::int64_t gate_up_parameters(const nn::CausalLMSpec& spec) {
  std::int64_t parameters = 0;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    for (const nn::Module& module : layer.mlp.gate_up_modules())
      parameters += module.out_features * layer.mlp.hidden_size;
  }
  return parameters;
}

std::set<std::string> gate_up_names(const nn::CausalLMSpec& spec) {
  std::set<std::string> names;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    for (const nn::Module& module : layer.mlp.gate_up_modules()) names.insert(module.name);
  }
  return names;
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

AdapterSize adapter_size(const peft::LoraAdapters& adapters, const nn::CausalLMSpec& spec) {
  using Kind = peft::LoraAdapters::Kind;
  AdapterSize size;
  const std::set<std::string> gate_up = gate_up_names(spec);
  for (const auto& module : adapters.modules()) {
    for (const std::size_t index : module.segments()) {
      const peft::AdapterSegment& segment = adapters.store().segment(index);
      if (module.kind == Kind::kEmbedding && index == module.b) continue;
      std::int64_t& part = module.kind == Kind::kHead ? size.head
                           : segment.frozen           ? size.frozen
                                                      : size.trained;
      part += segment.size();
      if (gate_up.contains(module.name)) size.gate_up += segment.size();
    }
  }
  for (const auto& table : adapters.tables()) {
    if (table.name == spec.head.name || table.tied_head == spec.head.name)
      size.head_table += adapters.store().segment(table.segment).size();
  }
  return size;
}

double step_flops(const nn::ModelShape& shape, const AdapterSize& adapter, const StepSize& size) {
  const double linear = 4.0 * d(shape.layer_linear_parameters) * d(size.tokens);
  const double head = 4.0 * d(shape.hidden_size) * d(shape.vocab_size) * d(size.label_tokens);
  const double low_rank = (6.0 * d(adapter.trained) + 4.0 * d(adapter.frozen)) * d(size.tokens);
  const double tables = (6.0 * d(adapter.head) + 2.0 * d(adapter.head_table)) * d(size.label_tokens);
  return linear + head + low_rank + tables + 3 * attention_flops(shape, size);
}

double recomputed_flops(const nn::CausalLMSpec& spec, const AdapterSize& adapter, const StepSize& size,
                        config::ActivationCheckpointing grade) {
  const auto forward = [&](std::int64_t parameters) { return 2.0 * d(parameters) * d(size.tokens); };
  switch (grade) {
    case config::ActivationCheckpointing::kNone: return 0;
    case config::ActivationCheckpointing::kMlp: return forward(gate_up_parameters(spec) + adapter.gate_up);
    case config::ActivationCheckpointing::kFull: break;
  }
  return forward(spec.shape.layer_linear_parameters + adapter.trained + adapter.frozen) +
         attention_flops(spec.shape, size);
}

}  // namespace lorikeet::train
