"""Takes one feature after the other out of the source, and looks whether a test fails for want of it.

usage: take_out_features.py BUILD_FOLDER [WORD ...]    (only features that have one of the words; not part of ctest)

A feature is a replacement in a file; `families` are those whose golden logits, or tokens of decoding, must fail without it,
every one of them, and no other family's. Features of different families are taken out together, so that one build serves
several. What a backward alone has is looked for in another test program. Prints a Markdown table; exits with 1 if a feature
isn't missed. The files are written back at the end, also after Ctrl-C; the build folder is then behind them.
"""

import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARITY = ("test_parity", "the logits of every family*,decoding with a cache*")
MODELS = ("test_models", "an embedding's scale*,Gemma's embedding scale*")
GRADIENTS = ("test_train", "gradients are right*,gradients of all adapters*")
ROUTING = ("test_ops", "the gradient of logits*")
CONVOLUTIONS = ("test_train", "gradients through gated*")
DECODING = ("test_nn", "logits of cached decoding*")
GEMMAS = {"gemma", "gemma2", "gemma3", "gemma3_text"}
SANDWICH = GEMMAS - {"gemma"}
YARN = {"gpt_oss", "mistral", "ministral3", "mistral3", "olmo3", "qwen3"}
INTERLEAVED = {"cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "glm", "glm4"}
NESTED = {"gemma3", "gemma3_text"}
GEMMA4 = {"gemma4", "gemma4_text", "gemma4_unified"}
SHARED_KEYS = {"gemma4", "gemma4_text"}
HEAD_NORMS = ("attention.qk_norm = head_norms(", "[[maybe_unused]] const nn::QkNormSpec taken_out = head_norms(")
WHOLE_NORMS = ("attention.qk_norm = whole_norms(", "[[maybe_unused]] const nn::QkNormSpec taken_out = whole_norms(")
SHARED_EXPERTS = {"qwen2_moe", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"}
BESIDE_MLP = {"gemma4", "gemma4_text"}
CHOICE_BIAS = {"ernie4_5_moe", "glm4_moe", "lfm2_moe"}
EXPERTS = {"gpt_oss", "mixtral", "olmoe", "qwen3_moe", "qwen3_vl_moe"} | SHARED_EXPERTS | BESIDE_MLP | CHOICE_BIAS
LFM2 = {"lfm2", "lfm2_moe"}
DELTA_NETS = {"qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"}


@dataclass(frozen=True)
class Feature:
    name: str
    families: frozenset  # empty: a test of `program` must fail
    file: str
    old: str
    new: str
    program: tuple = PARITY


def of(families, file, *changes):
    names = {families} if isinstance(families, str) else families
    return [Feature(name, frozenset(names), file, old, new) for name, old, new in changes]


def of_program(program, file, *changes):
    return [Feature(name, frozenset(), file, old, new, program) for name, old, new in changes]


FEATURES = [
    *of({"mistral", "ministral", "ministral3"}, "models/mistral/mistral.cpp",
        ("window", "options.window = windows[", "options.window = 0 * windows[")),
    *of("ministral", "models/mistral/mistral.cpp",
        ("windows by layer types", "const auto windows = by_layer_types", "const auto windows = by_layer_types && sizes.layers == 0")),
    *of({"ministral3", "mistral3"}, "models/rope.cpp",
        ("queries scaled by their position", "spec->query_beta = zero", "spec->query_beta = 0 * zero")),
    *of({"qwen2", "qwen2_5_vl", "qwen2_vl"}, "models/qwen2/qwen2.cpp",
        ("bias of q, k and v", "qkv_bias = true;", "qkv_bias = false;")),
    *of({"qwen2", "qwen2_5_vl", "qwen2_moe"}, "models/qwen2/qwen2.cpp",
        ("window from a layer on", "options.window = windows[", "options.window = 0 * windows[")),
    *of({"qwen2_5_vl", "qwen2_vl"}, "models/qwen_vl/qwen_vl.cpp",
        ("names of a multimodal checkpoint", '"model."}', '"tower."}')),
    *of({"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe"}, "models/qwen3/qwen3.cpp", ("norms of q and k by head", *HEAD_NORMS)),
    *of({"qwen3", "qwen3_moe", "qwen3_vl_moe"}, "models/qwen3/qwen3.cpp",
        ("biases of attention", "attention.output_bias = bias;", "attention.output_bias = bias && sizes.layers == 0;")),
    *of("qwen3_moe", "models/qwen3_moe/qwen3_moe.cpp",
        ("window", "used ? config.size(", "used && sizes.layers == 0 ? config.size(")),
    *of("qwen2_moe", "models/qwen2_moe/qwen2_moe.cpp",
        ("bias of q, k and v", "layer.attention.qkv_bias = bias;", "layer.attention.qkv_bias = bias && sizes.layers == 0;")),
    *of(SHARED_EXPERTS, "lib/nn/shared_expert.cpp",
        ("shared expert", "ops::add_row_gate_(y, own, gate);", ""),
        ("gate of the shared expert", "ops::add_row_gate_(y, own, gate);", "y.add_(own);")),
    *of({"glm4_moe", "lfm2_moe", "qwen2_moe", "qwen3_moe", "qwen3_next"}, "models/experts.cpp",
        ("norm_topk_prob", 'config.flag("norm_topk_prob", defaults.normalized);',
         'config.flag("norm_topk_prob", defaults.normalized) && sizes.layers == 0;')),
    *of("mixtral", "models/mixtral/mixtral.cpp",
        ("window", "options.window = window;", "options.window = 0 * window;"),
        ("experts' weights that are divided by their sum", ".normalized = true", ".normalized = false"),
        ("which projection is the gate", 'names.gate = "w1";\n  experts.names.up = "w3";',
         'names.gate = "w3";\n  experts.names.up = "w1";')),
    *of("gpt_oss", "models/gpt_oss/gpt_oss.cpp",
        ("windows in every other layer", "options.window = windows[", "options.window = 0 * windows["),
        ("sinks", "attention.sinks = true;", "attention.sinks = false;"),
        ("biases of attention", "attention.output_bias = bias;", "attention.output_bias = bias && sizes.layers == 0;"),
        ("bias of the router", "experts.router_bias = experts.bias = true;", "experts.bias = true;"),
        ("biases of experts", "experts.router_bias = experts.bias = true;", "experts.router_bias = true;"),
        ("clamped SwiGLU", "experts.activation = ops::Activation::kClampedSwiglu;", ""),
        ("rows of gate and up in turn", "gate_up_stacks(/*transposed=*/true, experts.stacks.interleaved);", "gate_up_stacks(/*transposed=*/true, false);")),
    *of({"gpt_oss", "qwen3_vl_moe"} | BESIDE_MLP, "models/experts.cpp",
        ("which rows are the gate", '.modules = {"gate_proj", "up_proj"}', '.modules = {"up_proj", "gate_proj"}')),
    *of("olmoe", "models/olmoe/olmoe.cpp", ("norms of q and k over all heads", *WHOLE_NORMS)),
    *of({"glm4_moe", "lfm2_moe", "olmoe", "qwen2_moe", "qwen3_moe"}, "lib/ops/experts/routing.cpp",
        ("experts' weights as the softmax has them", "if (options.normalized) {\n    at::Tensor sum = routing", "if (k > 0) {\n    at::Tensor sum = routing")),
    *of(EXPERTS, "models/experts.cpp",
        ("number of experts a token", "per_token = config.size_or(defaults.per_token_key",
         "per_token = 1 + 0 * config.size_or(defaults.per_token_key")),
    *of(EXPERTS, "lib/ops/experts/routing.cpp", ("weights of a token's experts", "routing.weights *= options.scale;", "routing.weights *= options.scale;\n  routing.weights.fill_(1);")),
    *of(DELTA_NETS, "models/qwen3_5/delta_decoder.cpp",
        ("norms of 1 + weight", "layer.mlp_norm->unit_offset = true;", "layer.mlp_norm->unit_offset = false;"),
        ("final norm of 1 + weight", "spec.final_norm.unit_offset = true;", ""),
        ("norms of q and k by head", *HEAD_NORMS),
        ("norms of q and k of 1 + weight", "/*unit_offset=*/true", "/*unit_offset=*/false"),
        ("eps of the norm behind the delta rule", ".norm_eps = eps,", ".norm_eps = eps < 0 ? eps : 1e-6,"),
        ("value heads that share a key head", ".layout = layout,",
         ".layout = {layout.value_heads, layout.value_heads, layout.key_dim * layout.key_heads / layout.value_heads, layout.value_dim},")),
    *of("lfm2", "models/lfm2/lfm2.cpp", ("two thirds of the MLP's width", "2 * whole / 3", "2 * whole / 2")),
    *of("lfm2_moe", "models/lfm2/lfm2.cpp",
        ("sigmoids of a router", "experts.router.scores = ops::RouterScores::kSigmoid;", ""),
        ("scale of experts' weights", 'positive_or("routed_scaling_factor", kLargestScale, 1);', 'positive_or("routed_scaling_factor", kLargestScale, 1) * 0 + 1;'),
        ("first layers without experts", "return layer >= dense;", "return layer >= 0 * dense;")),
    *of("glm4_moe", "models/glm4_moe/glm4_moe.cpp",
        ("sigmoids of a router", "experts.router.scores = ops::RouterScores::kSigmoid;", ""),
        ("scale of experts' weights", 'positive_or("routed_scaling_factor", kLargestScale, 1);', 'positive_or("routed_scaling_factor", kLargestScale, 1) * 0 + 1;'),
        ("first layers without experts", "return layer >= dense;", "return layer >= 0 * dense;"),
        ("bias of q, k and v", "layer.attention.qkv_bias = bias;", "layer.attention.qkv_bias = bias && i < 0;"),
        ("norms of q and k by head", "if (normed) layer.attention.qk_norm", "if (normed && i < 0) layer.attention.qk_norm")),
    *of("ernie4_5_moe", "models/ernie4_5/ernie4_5.cpp",
        ("which layers have experts", "(layer + 1) % interval == 0 && layer >= first", "layer >= first"),
        ("the last layer with experts", " && layer <= last;", " && layer <= last + sizes.layers;")),
    *of({"ernie4_5_moe", "glm4_moe"}, "lib/nn/shared_expert.cpp", ("shared experts without a gate", "if (!gate_) return y.add_(own);", "if (!gate_) return y;")),
    *of(CHOICE_BIAS, "lib/nn/experts.cpp",
        ("bias for the choice of experts", "choice_bias_ ? unit_->tensor(*choice_bias_).flatten() : at::Tensor()", "at::Tensor()")),
    *of(LFM2, "models/lfm2/lfm2.cpp",
        ("which layers attend", "attends.push_back(name == \"full_attention\")", "attends.push_back(name != \"full_attention\")"),
        ("norms of q and k by head", "      attention.qk_norm = {", "      [[maybe_unused]] const nn::QkNormSpec taken_out = {")),
    *of(LFM2, "lib/ops/gated_conv/cpu.cpp",
        ("gate before the convolution", "store(load(b[i]) * load(x[i]), rounded)", "store(load(x[i]), rounded)"),
        ("gate behind the convolution", "store(load(c[i]) * window.sum(i), y[i]);\n    }\n  }\n}",
         "store(window.sum(i), y[i]);\n    }\n  }\n}"),
        ("earlier rows", "for (int j = taps - 2; j >= 0; --j) total += w[j][i] * u[j][i];", "total = w[0][i] * u[0][i];"),
        ("order of the taps", "w[j] = weight + (taps - 1 - j) * channels;", "w[j] = weight + j * channels;")),
    *of(DELTA_NETS | LFM2, "lib/nn/kv_cache.cpp",
        ("decoding: the rows before a token", "before = rows.defined() ? rows : at::zeros(", "before = at::zeros(")),
    *of({"qwen3_5_text", "qwen3_next"}, "models/qwen3_5/delta_decoder.cpp",
        ("biases of attention", "attention.output_bias = bias;", "attention.output_bias = bias && sizes.layers == 0;")),
    *of(DELTA_NETS, "lib/nn/attention.cpp",
        ("gate behind attention", "gated_ ? ops::sigmoid_gate(out", "gated_ && layer_ < 0 ? ops::sigmoid_gate(out"),
        ("which rows of q_proj are gates", "{layout.heads, {1, 1}, layout.head_dim}", "{1, {1, 1}, q}")),
    *of(DELTA_NETS, "lib/nn/gated_delta_net.cpp",
        ("convolution", "ops::gated_delta(convolved(projected, weights, context)", "ops::gated_delta(before_convolution(projected).contiguous()"),
        ("the convolution's earlier rows", ".dense(dtype);", ".dense(dtype) * at::arange(taps_).ge(taps_ - 1);"),
        ("dt_bias", "unit_->tensor(dt_bias_)}", "0 * unit_->tensor(dt_bias_)}"),
        ("A_log", "{unit_->tensor(a_log_),", "{0 * unit_->tensor(a_log_),"),
        ("norm and gate behind the delta rule", "normed = ops::gated_norm(out, z(projected), norm_weight(), norm_eps_);", "normed = out;"),
        ("decoding: the rule's state", "rule.push_back(states[s]->rule);", "rule.emplace_back();")),
    *of(DELTA_NETS - {"qwen3_next"}, "lib/nn/gated_delta_net.cpp",
        ("which module makes beta", 'names.b, layout.value_heads}, {prefix + "." + names.a,', 'names.a, layout.value_heads}, {prefix + "." + names.b,')),
    *of("qwen3_next", "lib/nn/gated_delta_net.cpp",
        ("in_proj_qkvz by key heads", "{layout.key_heads, {k, k, v, v}, 1}", "{1, {k, k, v, v}, layout.key_heads}"),
        ("in_proj_ba by key heads", "{layout.key_heads, {heads, heads}, 1}", "{1, {heads, heads}, layout.key_heads}")),
    *of("phi3", "models/phi3/phi3.cpp", ("window", "options.window = window;", "options.window = 0 * window;")),
    *of("phi3", "models/rope.cpp",
        ("longrope's long factors", 'long_factor = factors(object, "long_factor"', 'long_factor = factors(object, "short_factor"'),
        ("longrope's short factors", 'short_factor = factors(object, "short_factor"', 'short_factor = factors(object, "long_factor"'),
        ("longrope's attention factor", "spec->attention_factor = object", "spec->attention_factor = longer > 0 ? 1 : object")),
    *of("phi3", "lib/nn/rotary_table.cpp",
        ("longrope's switch at its position", "length > *switch_length()", "length >= *switch_length()"),
        ("longrope's factors by the sequence's own length", "is_long(batch.length(s))", "is_long(batch.positions)")),
    *of("phi3", "lib/nn/causal_lm.cpp",
        ("the cache's rebuilding at longrope's switch", "return rotary_ ? rotary_->", "return rotary_ && layers_.empty() ? rotary_->")),
    *of({"phi3", "gpt_neox", "stablelm", "glm", "glm4", "glm4_moe"} | DELTA_NETS, "models/rope.cpp",
        ("partial rotary", ".rotary_dim = rotated(reader, head_dim, part, keys)",
         ".rotary_dim = 0 * rotated(reader, head_dim, part, keys) + head_dim")),
    *of("gpt_neox", "models/gpt_neox/gpt_neox.cpp",
        ("query_key_value by heads", '"query_key_value", sizes.heads}', '"query_key_value", 1}'),
        ("parallel blocks", "layer.parallel = parallel;", "layer.parallel = parallel && sizes.layers == 0;"),
        ("biases of attention", "output_bias = attention_bias;", "output_bias = attention_bias && sizes.layers == 0;"),
        ("biases of the MLP", "layer.mlp.bias = true;", "layer.mlp.bias = false;"),
        ("GELU as the file names it", "layer.mlp.activation = activation;",
         "layer.mlp.activation = activation == ops::Activation::kGelu ? ops::Activation::kGeluTanh : ops::Activation::kGelu;")),
    *of("granitemoehybrid", "models/granite/granite.cpp",
        ("width of the shared MLP", 'sizes.intermediate_size = config.size("shared_intermediate_size", kLargestWidth);', ""),
        ("rotary of Granite 4", "if (!rotary) layer.rotary", "layer.rotary")),
    *of(YARN, "lib/nn/rotary_table.cpp",
        ("yarn's frequencies", "} else if (yarn) {", "} else if (yarn && spec.factor < 0) {")),
    *of(YARN - {"ministral3", "mistral3"}, "models/rope.cpp",
        ("yarn's attention factor", 'spec->attention_factor = number_or("attention_factor", plain)',
         'spec->attention_factor = number_or("attention_factor", 0 * plain + 1)')),
    *of("mistral", "models/rope.cpp",
        ("yarn's blend that ends between pairs", 'spec->truncate = object.at("truncate").as_bool()', "spec->truncate = true")),
    *of(INTERLEAVED, "lib/ops/rotary/cpu.cpp", ("pairs of neighbours", "if (interleaved) {", "if (interleaved && sign == 0) {")),
    *of({"glm", "glm4"}, "models/glm/glm.cpp", ("interleaved rotary", "layout.interleaved = true;", "layout.interleaved = false;")),
    *of("glm", "models/glm/glm.cpp",
        ("bias of q, k and v", "attention.qkv_bias = bias;", "attention.qkv_bias = bias && sizes.layers == 0;")),
    *of("glm4", "models/glm/glm.cpp", ("norms behind the blocks", "if (norms_behind) {", "if (norms_behind && sizes.layers == 0) {")),
    *of({"cohere", "cohere2"}, "models/cohere/cohere.cpp",
        ("interleaved rotary", "layout.interleaved = true;", "layout.interleaved = false;"),
        ("parallel blocks", "layer.mlp_norm.reset();", 'layer.mlp_norm = layer.attention_norm; layer.parallel = false;'),
        ("scale of the logits", "spec.head.scale =", "[[maybe_unused]] const double taken_out =")),
    *of("cohere2", "models/cohere/cohere.cpp",
        ("windows", "options.window = windows[static_cast<std::size_t>(i)];", "options.window = 100 * windows[static_cast<std::size_t>(i)];"),
        ("layers without rotary", "layer.rotary = nn::LayerRotary::kNone;", "layer.rotary = nn::LayerRotary::kGlobal;")),
    *of("ernie4_5", "models/ernie4_5/ernie4_5.cpp",
        ("interleaved rotary", "layout.interleaved = true;", "layout.interleaved = false;"),
        ("biases", "layer.mlp.bias = bias;", "layer.mlp.bias = bias && sizes.layers == 0;")),
    *of("falcon", "models/falcon/falcon.cpp",
        ("query_key_value by groups", '"query_key_value", c.qkv_groups}', '"query_key_value", 1}'),
        ("one key head for all", "c->kv_heads = 1;", "c->kv_heads = c->heads;"),
        ("two norms of parallel blocks", 'if (c.norms == 2) layer.mlp_norm = norm(".ln_mlp");', ""),
        ("blocks in sequence", "layer.parallel = c.parallel;", "layer.parallel = true;"),
        ("biases of attention", "output_bias = c.bias;", "output_bias = false;"),
        ("biases of the MLP", "layer.mlp.bias = c.bias;", "layer.mlp.bias = false;"),
        ("GELU", "layer.mlp.activation = c.activation;", "layer.mlp.activation = ops::Activation::kSilu;"),
        ("bias of the final norm", 'layer_norm("transformer.ln_f", c, c.eps)', 'layer_norm("transformer.ln_f", c, c.eps, false)')),
    *of("gemma", "models/gemma/gemma.cpp",
        ("norms of 1 + weight", "layer.mlp_norm->unit_offset = true;", "layer.mlp_norm->unit_offset = false;"),
        ("GELU", "layer.mlp.activation = ops::Activation::kGeluTanh;\n    spec", "spec")),
    *of("gemma2", "models/gemma/gemma.cpp",
        ("windows in every other layer", "layer.attention.options.window = windows", "layer.attention.options.window = 0 * windows"),
        ("soft cap of the scores", "layer.attention.options.soft_cap = ", "layer.attention.options.soft_cap = 0 * "),
        ("soft cap of the logits", "spec.head.soft_cap = read_required_cap", "spec.head.soft_cap = 0 * read_required_cap")),
    *of(NESTED, "models/gemma/gemma.cpp",
        ("windows", "\n    attention.options.window = windows", "\n    attention.options.window = 0 * windows"),
        ("norms of q and k by head", *HEAD_NORMS),
        ("norms of q and k of 1 + weight", "/*unit_offset=*/true", "/*unit_offset=*/false"),
        ("a rotary base of windowed layers", "? nn::LayerRotary::kLocal", "? nn::LayerRotary::kGlobal")),
    *of(NESTED, "models/rope.cpp", ("linear scaling", "spec->scaling = Scaling::kLinear;", "")),
    *of({"gemma3", "mistral3"}, "models/multimodal.cpp",
        ("names of a multimodal checkpoint", '"language_model.model."}', '"language_tower.model."}')),
    *of(SANDWICH, "models/gemma/gemma.cpp",
        ("norms of 1 + weight", "{prefix + name, sizes.hidden_size, eps, true}", "{prefix + name, sizes.hidden_size, eps, false}"),
        ("GELU", "layer.mlp.activation = ops::Activation::kGeluTanh;\n  return", "return"),
        ("norm behind attention", 'layer.post_attention_norm = norm(".post_attention_layernorm");', ""),
        ("norm behind the MLP", 'layer.post_mlp_norm = norm(".post_feedforward_layernorm");', ""),
        ("scale of the queries", "options.scale = 1 / std::sqrt(query_scalar);", "options.scale += 0 * query_scalar;")),
    *of(GEMMAS, "models/gemma/gemma.cpp",
        ("final norm of 1 + weight", "spec.final_norm.unit_offset = true;", ""),
        ("embedding scale", "spec.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden_size));",
         "spec.embedding_scale = sizes.hidden_size > 0 ? 1 : std::sqrt(2.0);")),
    *of(GEMMA4, "models/gemma4/gemma4.cpp",
        ("windows", "attention.options.window = s.windows", "attention.options.window = 0 * s.windows"),
        ("norms of q and k by head", *HEAD_NORMS),
        ("norm of the values", "attention.value_norm_eps = eps;", ""),
        ("scores that aren't scaled", "attention.options.scale = 1;", ""),
        ("number behind each layer", 'layer.output_scale = prefix + ".layer_scalar";', ""),
        ("norm behind attention", 'layer.post_attention_norm = norm(".post_attention_layernorm");', ""),
        ("norm behind the MLP", 'layer.post_mlp_norm = norm(".post_feedforward_layernorm");', ""),
        ("GELU", "layer.mlp.activation = ops::Activation::kGeluTanh;", ""),
        ("soft cap of the logits", '? config.positive("final_logit_softcapping", 1e6) : 0;',
         '? 0 * config.positive("final_logit_softcapping", 1e6) : 0;'),
        ("embedding scale", "spec.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden_size));", "")),
    *of({"gemma4", "gemma4_text"}, "models/gemma4/gemma4.cpp",
        ("biases of attention", "attention.output_bias = s.bias;", "attention.output_bias = s.bias && index < 0;")),
    *of(SHARED_KEYS, "models/gemma4/gemma4.cpp",
        ("inputs of layers", "  if (s.input_width > 0) {\n    layer.layer_input", "  if (s.input_width > 0 && index < 0) {\n    layer.layer_input")),
    *of(BESIDE_MLP, "models/gemma4/gemma4.cpp",
        ("experts' weights that are divided by their sum", ".normalized = true,", ".normalized = false,"),
        ("scales of experts' weights", 'layer.experts->weight_scales = prefix + ".router.per_expert_scale";', ""),
        ("GELU of experts", "experts.activation = ops::Activation::kGeluTanh;", "")),
    *of(BESIDE_MLP, "lib/nn/experts_beside_mlp.cpp",
        ("scale of the router's norm", "unit_->tensor(router_scale_) / root_size_", "at::ones_like(unit_->tensor(router_scale_)) / root_size_"),
        ("root of the width in the router's norm", "/ root_size_, {}}", "/ (1 + 0 * root_size_), {}}"),
        ("norm of the router", "ops::norm(x, router_parameters(), experts_input_.options());", "x * router_parameters().weight.to(x.scalar_type());"),
        ("norm before experts", "experts_.forward(experts_input_.forward(x, nullptr), routed_by", "experts_.forward(x, routed_by"),
        ("norm behind experts", "y.add_(experts_output_.forward(routed, norms", "y.add_(routed + 0 * experts_output_.forward(routed, norms"),
        ("norm before the MLP beside experts", "at::Tensor y = mlp_.forward(mlp_input_.forward(x, norms != nullptr ? &norms->input : nullptr), weights,",
         "mlp_input_.forward(x, norms != nullptr ? &norms->input : nullptr);\n  at::Tensor y = mlp_.forward(x, weights,"),
        ("norm behind the MLP beside experts", "  y = mlp_output_.forward(y, norms", "  mlp_output_.forward(y, norms")),
    *of_program(GRADIENTS, "lib/nn/experts_beside_mlp.cpp",
                ("backward: the router's input beside an MLP", "ops::norm_backward(of_router, gradients.dx", "ops::norm_backward(0 * of_router, gradients.dx"),
                ("backward: experts' input beside an MLP", "through(experts_input_, std::exchange(own.dx, {}),", "through(experts_input_, own.dx.defined() ? 0 * own.dx : own.dx,"),
                ("backward: the MLP's input beside experts", "through(mlp_input_, std::exchange(own.dx, {}),", "through(mlp_input_, own.dx.defined() ? 0 * own.dx : own.dx,")),
    *of_program(GRADIENTS, "lib/ops/experts/routing.cpp",
                ("backward: weights before their scales", "routing.unscaled.defined() ? routing.unscaled", "routing.unscaled.defined() && options.per_token < 1 ? routing.unscaled")),
    *of(SHARED_KEYS, "lib/nn/layer_inputs.cpp",
        ("scale of the table of layers' inputs", ".scale = std::sqrt(static_cast<double>(spec.width())),", ".scale = 1,"),
        ("scale of layers' inputs", "  multiply_(inputs, kSumScale);\n", ""),
        ("norm behind a layer's input", "return norm_.forward(y, kept != nullptr ? &kept->norm : nullptr);",
         "norm_.forward(y, kept != nullptr ? &kept->norm : nullptr);\n  return y;")),
    *of(GEMMA4, "models/rope.cpp",
        ("pairs that proportional rotary leaves", "static_cast<std::int64_t>(rotated * static_cast", "static_cast<std::int64_t>((1 + 0 * rotated) * static_cast")),
    *of("gemma4_text", "models/rope.cpp",
        ("factor of proportional rotary", 'spec->factor = object.has("factor") ? positive(object, "factor") : 1;\n  spec->rotated',
         "spec->factor = 1;\n  spec->rotated")),
    *of_program(GRADIENTS, "lib/nn/attention.cpp",
                ("backward: what readers add to keys", "gradients.k.add_(of_readers", "if (layer_ < 0) gradients.k.add_(of_readers"),
                ("backward: what readers add to values", "gradients.v.add_(of_readers", "if (layer_ < 0) gradients.v.add_(of_readers"),
                ("backward: keys as values", "  dqkv.narrow(1, layout_.k_begin(), width).add_(", "  if (layer_ < 0) dqkv.narrow(1, layout_.k_begin(), width).add_("),
                ("backward: norm of the values", "    ops::norm_backward_(dvalues,", "    if (layer_ < 0) ops::norm_backward_(dvalues,"),
                ("backward: norm of queries beside another layer's keys", "    ops::norm_backward_(heads,", "    if (layer_ < 0) ops::norm_backward_(heads,")),
    *of_program(GRADIENTS, "lib/nn/decoder_layer.cpp",
                ("backward: number behind a layer", "if (output_scale_) gradient = scaled(gradient);", ""),
                ("backward: the stream through a layer's input", "gradient = gradient + through;", "")),
    *of_program(GRADIENTS, "lib/nn/layer_inputs.cpp",
                ("backward: scale of layers' inputs", "dy * c10::scalar_to_tensor(kSumScale)", "dy.clone()"),
                ("backward: scale of the projection to layers' inputs", "  multiply_(gradient, projection_scale_);\n", "")),
    *of_program(GRADIENTS, "lib/train/micro_step.cpp",
                ("backward: the embedding through layers' inputs", "if (model_.embedding().learns()) gradient = gradient + through;", "")),
    *of_program(DECODING, "lib/nn/attention.cpp",
                ("decoding: keys of another layer", "layer = keys_of_.value_or(layer_);", "layer = keys_of_ ? 0 : layer_;")),
    *of({"olmo2", "olmo3", "exaone4"}, "models/decoder_spec.cpp",
        ("norm behind attention alone", "layer.post_attention_norm = ", "layer.attention_norm = "),
        ("norm behind the MLP alone", "layer.post_mlp_norm = ", "layer.mlp_norm = ")),
    *of({"gpt_neox", "falcon", "stablelm", "starcoder2", "cohere", "cohere2"}, "models/decoder_spec.cpp",
        ("layer norm", "ops::NormKind::kLayer, bias}", "ops::NormKind::kRms, bias}")),
    *of({"gpt_neox", "falcon", "stablelm", "starcoder2"}, "models/decoder_spec.cpp",
        ("bias of norms", "ops::NormKind::kLayer, bias}", "ops::NormKind::kLayer, bias && eps < 0}")),
    *of({"olmo2", "olmo3"}, "models/olmo2/olmo2.cpp", ("norms of q and k over all heads", *WHOLE_NORMS)),
    *of("olmo3", "models/olmo2/olmo2.cpp",
        ("windows", "layer.attention.options.window = windows", "layer.attention.options.window = 0 * windows"),
        ("no scaling in layers with windows", "? nn::LayerRotary::kLocal", "? nn::LayerRotary::kGlobal")),
    *of("exaone4", "models/exaone4/exaone4.cpp",
        ("norms of q and k by head", *HEAD_NORMS),
        ("windows", "attention.options.window = windows", "attention.options.window = 0 * windows"),
        ("layers without rotary beside windows", "layer.rotary = nn::LayerRotary::kNone;", "layer.rotary = nn::LayerRotary::kGlobal;"),
        ("rotary in layers without windows", "if (windowed && attention", "if (attention")),
    *of("seed_oss", "models/seed_oss/seed_oss.cpp",
        ("bias of q, k and v", "layer.attention.qkv_bias = bias;", "layer.attention.qkv_bias = bias && sizes.layers == 0;")),
    *of("smollm3", "models/smollm3/smollm3.cpp",
        ("layers without rotary", "layer.rotary = nn::LayerRotary::kNone;", "layer.rotary = nn::LayerRotary::kGlobal;")),
    *of({"granite", "granitemoehybrid"}, "models/granite/granite.cpp",
        ("embedding multiplier", "spec.embedding_scale = config", "spec.embedding_scale = 1 + 0 * config"),
        ("residual multiplier", "residual_multiplier = residual;", "residual_multiplier = 1 + 0 * residual;"),
        ("attention multiplier", "options.scale = attention;", "options.scale += 0 * attention;"),
        ("logits scaling", "spec.head.scale = 1 / config", "spec.head.scale = 1 + 0 * config")),
    *of("granite", "models/granite/granite.cpp",
        ("biases of attention", "output_bias = attention_bias;", "output_bias = attention_bias && sizes.layers == 0;"),
        ("biases of the MLP", "layer.mlp.bias = mlp_bias;", "layer.mlp.bias = mlp_bias && sizes.layers == 0;")),
    *of("stablelm", "models/stablelm/stablelm.cpp",
        ("bias of q, k and v", "qkv_bias = qkv_bias;", "qkv_bias = qkv_bias && sizes.layers == 0;"),
        ("parallel blocks behind one norm", 'config.flag("use_parallel_residual", false);',
         'config.flag("use_parallel_residual", false) && sizes.layers == 0;')),
    *of("starcoder2", "models/starcoder2/starcoder2.cpp",
        ("window", "options.window = window;", "options.window = 0 * window;"),
        ("biases of attention", "output_bias = bias;", "output_bias = bias && sizes.layers == 0;"),
        ("biases of the MLP", "layer.mlp.bias = bias;", "layer.mlp.bias = bias && sizes.layers == 0;"),
        ("GELU as the file names it", "layer.mlp.activation = activation;",
         "layer.mlp.activation = activation == ops::Activation::kGelu ? ops::Activation::kGeluTanh : ops::Activation::kGelu;")),
    *of({"falcon", "gpt_neox", "stablelm", "cohere", "cohere2"}, "lib/nn/decoder_layer.cpp",
        ("attention's output in parallel blocks", "if (parallel_) hidden.delta", "if (parallel_ && m < 0) hidden.delta")),
    *of_program(GRADIENTS, "lib/nn/decoder_layer.cpp",
                ("backward: two blocks behind one norm", "if (one_norm) attention.dx", "if (one_norm && m < 0) attention.dx"),
                ("backward: the second norm of parallel blocks", "    past = pre_backward(mlp_norm_,", "    if (!parallel_) past = pre_backward(mlp_norm_,"),
                ("backward: residual multiplier", "multiplier == 1 ? gradient", "multiplier >= 0 ? gradient")),
    *of_program(GRADIENTS, "lib/nn/attention.cpp",
                ("backward: queries scaled by their position", "gradients.q.mul_(scale.unsqueeze(1))", "gradients.q.mul_(1)"),
                ("backward: the inverse rotation", "return ops::rotate_backward(gradients, angles.cos, angles.sin, layout_)",
                 "return ops::rotate_backward(gradients, angles.cos, -angles.sin, layout_)"),
                ("backward: norms of q and k", "  if (q_norm_) {\n    dqkv = ops::norm_and_rotate_backward",
                 "  if (q_norm_ && layer_ < 0) {\n    dqkv = ops::norm_and_rotate_backward")),
    *of_program(GRADIENTS, "lib/nn/attention.cpp",
                ("backward: the gate behind attention", "ops::sigmoid_gate_backward_(dout, kept.out,", "ops::sigmoid_gate_backward_(dout, 0 * kept.out,")),
    *of_program(GRADIENTS, "lib/nn/attention.cpp",
                ("attention sinks", "kept != nullptr ? &kept->softmax : nullptr, sinks());", "kept != nullptr ? &kept->softmax : nullptr);")),
    *of_program(GRADIENTS, "lib/ops/attention/attention.cpp",
                ("backward: statistics with sinks", "apply_sinks_(out, filled.lse, sinks);", "apply_sinks_(out, filled.lse.clone(), sinks);")),
    *of_program(DECODING, "lib/nn/attention.cpp",
                ("decoding: attention sinks", "context.cache->values(layer), cu, options_, sinks());", "context.cache->values(layer), cu, options_);")),
    *of_program(GRADIENTS, "lib/ops/activation/cpu.cpp",
                ("the clamped SwiGLU's up + 1", "return {(u + 1.0F) * value,", "return {u * value,"),
                ("backward: the clamped SwiGLU's up + 1", "of_gate * (u + 1.0F)", "of_gate * u")),
    *of_program(GRADIENTS, "lib/nn/gated_delta_net.cpp",
                ("backward: the input of b and a", "if (input_gradient) gradients.dx.add_(through_gates);", ""),
                ("backward: convolution", "convolution(weights, projected.scalar_type()), sequences,", "0 * convolution(weights, projected.scalar_type()), sequences,"),
                ("backward: the gate of the norm", "dprojected = at::empty_like(projected);\n      ops::gated_norm_backward_(dout, kept.out, z(projected), norm_weight(), norm_eps_, z(dprojected),",
                 "dprojected = at::zeros_like(projected);\n      ops::gated_norm_backward_(dout, kept.out, z(projected), norm_weight(), norm_eps_, z(dprojected).clone(),")),
    *of_program(GRADIENTS, "lib/nn/shared_expert.cpp",
                ("backward: the input of the shared expert's gate", "input_gradient && gate_;", "false;"),
                ("backward: the gate of the shared expert", "gate_ ? ops::row_gate(dy, gate) : dy", "dy"),
                ("backward: the input of the shared expert", "if (input_gradient) gradients.dx.add_(own.dx);", "")),
    *of_program(GRADIENTS, "lib/ops/experts/routing.cpp",
                ("backward: experts' weights that are divided by their sum", "of_chosen = of_chosen - shares * sum;", "")),
    *of_program(ROUTING, "lib/ops/experts/routing.cpp",
                ("backward: sigmoids of logits", "of_chosen = of_chosen * (1 - chosen.sigmoid());", ""),
                ("backward: shares before the scale", "options.scale == 1 ? weights : weights / options.scale", "weights")),
    *of_program(CONVOLUTIONS, "lib/ops/gated_conv/cpu.cpp",
                ("backward: later rows", "for (int j = 1; j < taps; ++j) du += w[j][i] * after[j][i];", ""),
                ("backward: gate before the convolution", "store(du * load(x[i]), dgate[i]);", "store(0 * du * load(x[i]), dgate[i]);"),
                ("backward: gate behind the convolution", "store(load(dy[i]) * window.sum(i), dc[i]);", "store(0 * window.sum(i), dc[i]);")),
    *of_program(MODELS, "models/gemma/gemma.cpp",
                ("embedding scale rounded to the compute dtype", "spec.embedding_scale_rounded = true;", "")),
]


def rounds(features):
    """Lists of features that are taken out together: no two of one family, and one that a whole program looks for alone."""
    made = []
    for feature in features:
        for those in made:
            alone = not feature.families or not those[0].families
            if not alone and not any(feature.families & other.families for other in those):
                those.append(feature)
                break
        else:
            made.append([feature])
    return made


def replaced(text, feature):
    if text.count(feature.old) != 1:
        raise SystemExit(f"{feature.file}: '{feature.old}' stands there {text.count(feature.old)} times; expected once")
    return text.replace(feature.old, feature.new)


def failures(build, program, tests):
    """(families with a failed check, whether anything failed)."""
    path = next(build.glob(f"tests/*/{program}"))
    done = subprocess.run([path, tests], capture_output=True, text=True, timeout=600, check=False)
    return set(re.findall(r'"families/(\w+)/', done.stdout)), done.returncode != 0


def try_round(build, features):
    """{feature: what failed}."""
    program, tests = features[0].program
    files = {feature.file: (ROOT / feature.file).read_text() for feature in features}
    try:
        changed = dict(files)
        for feature in features:
            changed[feature.file] = replaced(changed[feature.file], feature)
        for file, text in changed.items():
            (ROOT / file).write_text(text)
        built = subprocess.run(["ninja", "-C", build, program], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise SystemExit(f"without {', '.join(f.name for f in features)} it doesn't build:\n{built.stdout[-3000:]}")
        failed, any_failed = failures(build, program, tests)
    finally:
        for file, text in files.items():
            (ROOT / file).write_text(text)
    strays = failed - set().union(*(feature.families for feature in features)) if features[0].families else set()
    if strays:
        raise SystemExit(f"without {', '.join(f.name for f in features)} {', '.join(strays)} failed too")
    return {feature: feature.families <= failed if feature.families else any_failed for feature in features}


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    build, words = pathlib.Path(arguments[0]).resolve(), arguments[1:]
    chosen = [f for f in FEATURES if not words or any(w in f"{f.name} {f.file} {' '.join(f.families)}" for w in words)]
    missed = True
    print("| taken out | in | families | a test fails |\n|---|---|---|---|", flush=True)
    for features in rounds(chosen):
        for feature, fails in try_round(build, features).items():
            where = ", ".join(sorted(feature.families)) or feature.program[0]
            print(f"| {feature.name} | `{feature.file}` | {where} | {'yes' if fails else 'NO'} |", flush=True)
            missed = missed and fails
    return 0 if missed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
