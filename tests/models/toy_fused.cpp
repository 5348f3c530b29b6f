#include "models/toy_fused.h"

#include <ATen/ATen.h>

namespace lorikeet::test {
namespace {

nn::CausalLMSpec with_groups(const std::vector<std::int64_t>& qkv, const std::vector<std::int64_t>& gate_up) {
  nn::CausalLMSpec spec = toy_spec();
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].attention.fused_qkv = nn::FusedModule{"qkv", qkv.at(i)};
    spec.layers[i].mlp.fused_gate_up = nn::FusedModule{"w13", gate_up.at(i)};
  }
  return spec;
}

// Replaces the modules `names` by one.
void replace(State& state, const std::string& prefix, const std::vector<std::string>& names,
             const nn::FusedModule& fused) {
  for (const char* tensor : {".weight", ".bias"}) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : names) {
      const auto found = state.find(prefix + "." + name + tensor);
      if (found == state.end()) continue;
      parts.push_back(found->second);
      state.erase(found);
    }
    if (!parts.empty()) state[prefix + "." + fused.name + tensor] = fuse_rows(parts, fused.row_groups);
  }
}

}  // namespace

nn::CausalLMSpec fused_toy_spec() { return with_groups({2, 1, 2}, {20, 4, 1}); }

nn::CausalLMSpec uninterleaved_toy_spec() { return with_groups({1, 1, 1}, {1, 1, 1}); }

at::Tensor fuse_rows(const std::vector<at::Tensor>& parts, std::int64_t groups) {
  std::vector<at::Tensor> grouped;
  for (const at::Tensor& part : parts) grouped.push_back(part.unflatten(0, {groups, -1}));
  return at::cat(grouped, 1).flatten(0, 1);
}

std::vector<at::Tensor> split_rows(const at::Tensor& fused, const std::vector<std::int64_t>& sizes,
                                   std::int64_t groups) {
  std::vector<std::int64_t> in_group;
  for (const std::int64_t size : sizes) in_group.push_back(size / groups);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : fused.unflatten(0, {groups, -1}).split_with_sizes(in_group, 1))
    parts.push_back(part.flatten(0, 1));
  return parts;
}

State fuse(const State& separate, const nn::CausalLMSpec& spec) {
  State state = separate;
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    const auto& [q, k, v, output] = layer.attention.names;
    replace(state, layer.attention.prefix, {q, k, v}, *layer.attention.fused_qkv);
    const auto& [gate, up, down] = layer.mlp.names;
    replace(state, layer.mlp.prefix, {gate, up}, *layer.mlp.fused_gate_up);
  }
  return state;
}

}  // namespace lorikeet::test
