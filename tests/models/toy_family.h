#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace lorikeet::test {

/// Tensors by their checkpoint names, rows in module order.
using State = std::map<std::string, at::Tensor>;

/// A model of three layers that is not Llama-shaped, so that blocks stay general. It has an embedding scale,
/// norms with unit offset, a rotary part of each head, a scaled and capped head of its own, names unlike
/// Llama's, heads wider than the hidden size, and:
///   layer 0: parallel attention and MLP, window of 3, GELU, biases on q, k, v
///   layer 1: sandwich norms, no rotary, capped attention, GELU by tanh, biases on the other projections
///   layer 2: parallel with post-norms, SiLU
nn::CausalLMSpec toy_spec();

/// A model of the forms that toy_spec lacks, rotated by longrope's angles, which are others from 4 tokens on:
///   layer 0: parallel with two layer norms (with bias), plain MLP (NeoX)
///   layer 1: sandwich norms, queries and keys normed by head (Gemma 3)
///   layer 2: norms behind the blocks alone, queries and keys normed over all heads (OLMo 2),
///            rotated by angles of its own (Gemma 3)
///   layer 3: norms before the blocks, layer norm without bias, residual multiplier (Granite), no rotary,
///            attention sinks and a clamped SwiGLU (gpt-oss)
///   layer 4: norms before the blocks, attention with an output gate, three experts
///            of which a token passes two, and a shared one with its gate (Qwen 2 MoE)
///   layer 5: norms before the blocks, a gated delta net of two value heads a key head (Qwen 3.5)
nn::CausalLMSpec toy_forms_spec();

/// A model of Gemma 4's forms, with sandwich norms, norms of values and proportional rotary:
///   layer 0: a window of 3, the stream behind it multiplied by a number
///   layer 1: wider heads that share one key head, keys as values, biases, such a number
///   layer 2: the same without norms of queries and keys, and without the number, with three experts beside
///            the MLP, of which a token passes two
///   layer 3: like layer 0, whose keys and values it reads, with a wider MLP
///   layer 4: like layer 1, whose keys and values it reads, with a wider MLP and such experts, and without
///            the number
/// each with an input beside the stream.
nn::CausalLMSpec toy_gemma4_spec();

/// A model of LFM2's forms, with norms before the blocks: a gated short convolution of 3 taps, attention
/// whose queries and keys are normed by head, a gated short convolution of 4 taps.
nn::CausalLMSpec toy_short_conv_spec();

/// A model of DeepSeek's attention, with norms before the blocks: queries, keys and values of latents, with
/// biases and values narrower than keys; plain attention; queries of the input, keys and values of a latent,
/// neighbours rotated, values wider than keys.
nn::CausalLMSpec toy_latent_spec();

/// A model of Granite 4 H's forms, with norms before the blocks, a residual multiplier and no rotary: a Mamba
/// 2 layer of two groups of heads, whose output is normed by groups, with a bias in its convolution;
/// attention; a Mamba 2 layer with biases in its projections and four taps, and three experts beside the
/// fused MLP, of which a token passes two.
nn::CausalLMSpec toy_mamba_spec();

/// All of these.
std::vector<nn::CausalLMSpec> every_toy_spec();

/// Everything in fp32, for comparisons with a composition.
precision::Policy fp32_policy();

/// Seeded weights for every tensor of a model, fp32, of a size that keeps all non-linear parts in play.
State toy_state(const nn::CausalLM& model, std::uint64_t seed);

/// Allocates the model, or a part of it, on the CPU (`on_host`: see nn::WeightStore) and fills it.
void fill(nn::CausalLM& model, const State& state, const nn::WeightShard& shard = {}, bool on_host = false);

/// Logits [length, vocabulary] of one sequence of a toy model by plain ATen calls in fp64, differentiable in
/// the tensors of `state` (which are fp64).
at::Tensor toy_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// The same of a model of toy_forms_spec.
at::Tensor toy_forms_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// The same of a model of toy_gemma4_spec.
at::Tensor toy_gemma4_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// The same of a model of toy_short_conv_spec.
at::Tensor toy_short_conv_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// The same of a model of toy_latent_spec.
at::Tensor toy_latent_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// The same of a model of toy_mamba_spec.
at::Tensor toy_mamba_logits(const State& state, const std::vector<std::int32_t>& tokens);

/// Sequences of different lengths, longer and shorter than the window.
std::vector<std::vector<std::int32_t>> toy_prompts();

}  // namespace lorikeet::test
