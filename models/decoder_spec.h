#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/config_reader.h"
#include "models/sizes.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// A spec without layers: shape, rotary table, an embedding, a final RMS norm and a head with Llama's names.
/// `model`: what the names of all but the head begin with.
nn::CausalLMSpec decoder_spec(const DecoderSizes& sizes, const nn::RotarySpec& rotary, double norm_eps,
                              const std::string& model = "model");

/// Llama's layer with Llama's names: an RMS norm before each block, q, k, v, o without biases, a gated MLP.
/// Other families change what they have otherwise. `prefix` is that of all layers, "model.layers".
nn::DecoderLayerSpec llama_layer(const DecoderSizes& sizes, double norm_eps, std::int64_t index,
                                 const std::string& prefix = "model.layers");

/// The same with its norms behind the blocks instead of before them.
nn::DecoderLayerSpec post_norm_layer(const DecoderSizes& sizes, double norm_eps, std::int64_t index);

/// A layer norm of the stream.
nn::NormSpec layer_norm(const std::string& name, const DecoderSizes& sizes, double eps, bool bias = true);

/// RMS norms over each head of q and k, "q_norm" and "k_norm".
nn::QkNormSpec head_norms(const nn::AttentionSpec& attention, double eps, bool unit_offset = false);

/// The same over all heads of q, and over all of k.
nn::QkNormSpec whole_norms(const nn::AttentionSpec& attention, double eps);

/// The items of the list `key`, one for each layer. Throws Error for another number of them.
std::vector<JsonView> of_each_layer(ConfigReader& config, const char* key, const DecoderSizes& sizes);

/// Sets those of `layers` that the list `key` has, numbers of layers. Throws Error for a number of none.
void set_layers(std::vector<bool>& layers, ConfigReader& config, const char* key);

/// Whether the file has a window. Throws Error where `sliding_window` is absent: transformers then takes
/// 4096, where most files mean none.
bool read_whether_windowed(ConfigReader& config);

/// For read_windows: true of all layers but every `interval`-th.
std::function<bool(std::int64_t)> all_but_every(std::int64_t interval);

/// The attention window of each layer, 0 where a layer has none: `layer_types` of transformers 5 where the
/// file has it, or else `windowed`, by the layer's index, with the window of `sliding_window`. Throws Error
/// for windowed layers without a window, for an unknown type, or for another number of types than layers.
std::vector<std::int64_t> read_windows(ConfigReader& config, const DecoderSizes& sizes,
                                       const std::function<bool(std::int64_t)>& windowed);

/// The number of layers behind the last that predict tokens further ahead (`num_nextn_predict_layers`, or
/// transformers' `num_mtp_layers`; absent: one). They aren't trained.
std::int64_t read_further_layers(ConfigReader& config);

/// Has loading pass over so many layers behind the last.
void leave_out_further_layers(nn::CausalLMSpec& spec, std::int64_t count);

/// The activation that `key` names; absent: `fallback`, which is one of `known`.
ops::Activation read_activation(ConfigReader& config, const char* key, const std::string& fallback,
                                std::initializer_list<std::string_view> known);

/// Sets a spec's shape.layer_linear_parameters, idle_expert_parameters, output_row_parameters,
/// state_elements and state_space_elements.
void count_linear_parameters(nn::CausalLMSpec& spec);

}  // namespace lorikeet::models
