#include "train/flops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

namespace lorikeet::train {
namespace {

double d(std::int64_t n) { return static_cast<double>(n); }

double attention_flops(const nn::ModelShape& shape, const StepSize& size) {
  return 2.0 * d(shape.heads) * d(shape.head_dim) * d(size.attention_squares);
}

double recurrence_flops(const nn::ModelShape& shape, const StepSize& size) {
  return (7.0 * d(shape.state_elements) + 5.0 * d(shape.state_space_elements)) * d(size.tokens);
}

// Parameters times the rows that they multiply: all tokens, but for those of them that only output rows pass.
double row_products(std::int64_t parameters, std::int64_t of_output_rows, const StepSize& size) {
  return d(parameters - of_output_rows) * d(size.tokens) + d(of_output_rows) * d(size.label_tokens);
}

// Those that a token passes.
std::int64_t gate_up_parameters(const nn::DecoderLayerSpec& layer) {
  std::int64_t parameters = 0;
  if (const auto& experts = layer.experts)
    parameters += experts->router.per_token * 2 * experts->intermediate_size * experts->hidden_size;
  if (const auto mlp = layer.dense_mlp()) {
    for (const nn::Module& module : mlp->gate_up_modules())
      parameters += module.out_features * mlp->hidden_size;
  }
  return parameters;
}

// All of a layer, those of every expert.
std::vector<nn::Module> gate_up_modules(const nn::DecoderLayerSpec& layer) {
  std::vector<nn::Module> modules;
  if (const auto mlp = layer.dense_mlp()) modules = mlp->gate_up_modules();
  for (std::int64_t e = 0; layer.experts && e < layer.experts->count; ++e) {
    for (nn::Module& module : layer.experts->gate_up_modules(e)) modules.push_back(std::move(module));
  }
  return modules;
}

double gate_up_row_products(const nn::CausalLMSpec& spec, const StepSize& size) {
  std::int64_t parameters = 0;
  for (const nn::DecoderLayerSpec& layer : spec.layers) parameters += gate_up_parameters(layer);
  return row_products(parameters, spec.layers.empty() ? 0 : gate_up_parameters(spec.layers.back()), size);
}

std::set<std::string> gate_up_names(const nn::CausalLMSpec& spec) {
  std::set<std::string> names;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    for (const nn::Module& module : gate_up_modules(layer)) names.insert(module.name);
  }
  return names;
}

// Modules behind the last layer's attention.
std::set<std::string> output_row_names(const nn::CausalLMSpec& spec) {
  if (spec.layers.empty()) return {};
  const nn::DecoderLayerSpec& last = spec.layers.back();
  std::set<std::string> names{last.mixer_output().modules.front().name};
  for (const nn::Module& module : gate_up_modules(last)) names.insert(module.name);
  if (const auto mlp = last.dense_mlp()) names.insert(mlp->down_module().name);
  for (std::int64_t e = 0; last.experts && e < last.experts->count; ++e)
    names.insert(last.experts->down_module(e).name);
  if (const auto& input = last.layer_input) {
    for (const nn::GroupSpec& group : {input->gate_group(), input->projection_group()})
      names.insert(group.modules.front().name);
  }
  return names;
}

}  // namespace

double heads_width(const nn::AttentionSpec& attention) {
  const ops::HeadLayout& layout = attention.layout;
  if (!attention.latent) return d(layout.heads * layout.head_dim);
  const ops::LatentLayout& latent = attention.latent->layout;
  return d(layout.heads * (latent.key_dim() + latent.value_dim)) / 2;
}

AttentionSquares::AttentionSquares(const std::vector<nn::DecoderLayerSpec>& layers,
                                   const nn::ModelShape& shape) {
  std::map<std::int64_t, double> counts;
  for (const nn::DecoderLayerSpec& layer : layers) {
    if (!layer.attends()) continue;
    counts[layer.attention.options.window] += heads_width(layer.attention) / d(shape.heads * shape.head_dim);
  }
  layers_by_window_.assign(counts.begin(), counts.end());
}

std::int64_t AttentionSquares::of(std::int64_t length) const {
  std::int64_t squares = 0;
  for (const auto& [window, layers] : layers_by_window_) {
    const std::int64_t beyond = window > 0 ? std::max<std::int64_t>(length - window, 0) : 0;
    squares += std::llround(layers * d(length * length - beyond * beyond));
  }
  return squares;
}

TokenShares::TokenShares(const nn::CausalLMSpec& spec) {
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    if (!layer.experts) continue;
    prefixes_.push_back(layer.experts->experts_prefix());
    share_ = d(layer.experts->router.per_token) / d(layer.experts->count);
  }
}

bool TokenShares::is_expert(const std::string& module) const {
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const std::string& prefix) { return module.starts_with(prefix); });
}

AdapterSize adapter_size(const peft::LoraAdapters& adapters, const nn::CausalLMSpec& spec) {
  using Kind = peft::LoraAdapters::Kind;
  AdapterSize size;
  const std::set<std::string> gate_up = gate_up_names(spec), output_rows = output_row_names(spec);
  const TokenShares shares(spec);
  for (const auto& module : adapters.modules()) {
    const std::string& name = module.parts.front().name;
    const double share = shares.of(name);
    for (const std::size_t index : module.segments()) {
      const peft::AdapterSegment& segment = adapters.store().segment(index);
      if (module.kind == Kind::kEmbedding && index == module.b) continue;
      std::int64_t& part = module.kind == Kind::kHead ? size.head
                           : segment.frozen           ? size.frozen
                                                      : size.trained;
      const auto passed = std::llround(share * d(segment.size()));
      part += passed;
      const bool of_gate_up = gate_up.contains(name);
      if (of_gate_up) size.gate_up += passed;
      if (!output_rows.contains(name)) continue;
      (segment.frozen ? size.output_frozen : size.output_trained) += passed;
      if (of_gate_up) size.output_gate_up += passed;
    }
  }
  for (const auto& table : adapters.tables()) {
    if (table.name == spec.head.name || table.tied_head == spec.head.name)
      size.head_table += adapters.store().segment(table.segment).size();
  }
  return size;
}

double step_flops(const nn::ModelShape& shape, const AdapterSize& adapter, const StepSize& size) {
  const double linear = 4 * row_products(shape.token_parameters(), shape.output_row_parameters, size);
  const double head = 4.0 * d(shape.hidden_size) * d(shape.vocab_size) * d(size.label_tokens);
  const double low_rank = 6 * row_products(adapter.trained, adapter.output_trained, size) +
                          4 * row_products(adapter.frozen, adapter.output_frozen, size);
  const double tables = (6.0 * d(adapter.head) + 2.0 * d(adapter.head_table)) * d(size.label_tokens);
  return linear + head + low_rank + tables +
         3 * (attention_flops(shape, size) + recurrence_flops(shape, size));
}

double recomputed_flops(const nn::CausalLMSpec& spec, const AdapterSize& adapter, const StepSize& size,
                        config::ActivationCheckpointing grade) {
  switch (grade) {
    case config::ActivationCheckpointing::kNone: return 0;
    case config::ActivationCheckpointing::kMlp:
      return 2 *
             (gate_up_row_products(spec, size) + row_products(adapter.gate_up, adapter.output_gate_up, size));
    case config::ActivationCheckpointing::kFull: break;
  }
  return 2 * (row_products(spec.shape.token_parameters(), spec.shape.output_row_parameters, size) +
              row_products(adapter.trained, adapter.output_trained, size) +
              row_products(adapter.frozen, adapter.output_frozen, size)) +
         attention_flops(spec.shape, size) + recurrence_flops(spec.shape, size);
}

}  // namespace lorikeet::train
