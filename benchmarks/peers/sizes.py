"""Shapes of the models, layouts of the data, and the floating-point work of a step."""

import dataclasses

LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], rms_norm_eps=1e-5, rope_theta=10000.0,
             max_position_embeddings=4096, tie_word_embeddings=False)
QWEN3 = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], rms_norm_eps=1e-6, rope_theta=1e6, vocab_size=151936,
             head_dim=128, num_key_value_heads=8, max_position_embeddings=40960, tie_word_embeddings=True)


def llama(hidden, intermediate, layers, heads, kv_heads, vocabulary, **more):
    return {**LLAMA, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
            "head_dim": hidden // heads, **more}


def qwen3(hidden, intermediate, layers, heads, **more):
    return {**QWEN3, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, **more}


def qwen3_moe(hidden, expert, layers, heads, experts, per_token, **more):
    return qwen3(hidden, per_token * expert, layers, heads, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"],
                 moe_intermediate_size=expert, num_experts=experts, num_experts_per_tok=per_token, norm_topk_prob=True,
                 tie_word_embeddings=False, **more)


def qwen3_5(hidden, intermediate, layers, heads, kv_heads, value_heads, **more):
    """In three layers of four a gated delta net with 16 key heads."""
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    return qwen3(hidden, intermediate, layers, heads, model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"],
                 num_key_value_heads=kv_heads, head_dim=256, layer_types=kinds, linear_num_key_heads=16,
                 linear_num_value_heads=value_heads, linear_key_head_dim=128, linear_value_head_dim=128,
                 linear_conv_kernel_dim=4, partial_rotary_factor=0.25, rope_theta=1e7, **more)


def gpt_oss(hidden, expert, layers, heads, kv_heads, experts, per_token, vocabulary):
    """Experts as numbers: transformers makes numbers of mxfp4 on a CPU."""
    return dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], hidden_size=hidden, intermediate_size=expert,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=64,
                num_experts=experts, num_experts_per_tok=per_token, vocab_size=vocabulary, sliding_window=128,
                max_position_embeddings=131072, tie_word_embeddings=False)


def granite_h(hidden, intermediate, layers, heads, kv_heads, mamba_heads, state, vocabulary):
    """Granite 4 H without experts: Mamba 2 in all layers but the sixth of each ten, no rotary."""
    kinds = ["attention" if i % 10 == 5 else "mamba" for i in range(layers)]
    return dict(model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], hidden_size=hidden,
                intermediate_size=intermediate, shared_intermediate_size=intermediate, num_hidden_layers=layers, layer_types=kinds,
                num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=hidden // heads, num_local_experts=0,
                num_experts_per_tok=0, mamba_n_heads=mamba_heads, mamba_d_head=2 * hidden // mamba_heads, mamba_n_groups=1,
                mamba_d_state=state, mamba_d_conv=4, mamba_expand=2, position_embedding_type="nope", vocab_size=vocabulary,
                rms_norm_eps=1e-5, attention_multiplier=(hidden // heads) ** -0.5, embedding_multiplier=1.0, logits_scaling=1.0,
                residual_multiplier=1.0, max_position_embeddings=131072, tie_word_embeddings=False)


# What config.json says of each size; head_dim is always given.
MODELS = {
    "tiny": llama(128, 352, 2, 4, 2, 2000),
    "tiny-tied": llama(128, 352, 2, 4, 2, 2000, tie_word_embeddings=True),
    "tiny-qwen3": qwen3(128, 352, 2, 4, num_key_value_heads=2, head_dim=64, vocab_size=2000),
    "57m": llama(512, 1408, 8, 8, 4, 32000),
    "135m": llama(576, 1536, 30, 9, 3, 49152, rope_theta=1e5, tie_word_embeddings=True),  # SmolLM2-135M
    "tiny-moe": qwen3_moe(128, 64, 2, 4, 8, 2, num_key_value_heads=2, head_dim=64, vocab_size=2000),
    "moe-500m": qwen3_moe(1024, 512, 8, 8, 32, 4, num_key_value_heads=4, vocab_size=32000),  # of which a token passes 140M
    "tiny-oss": gpt_oss(128, 64, 2, 4, 2, 8, 2, 2000),
    "oss-500m": gpt_oss(1024, 1024, 8, 16, 4, 16, 4, 32000),  # of which a token passes 155M
    "tiny-delta": qwen3_5(128, 352, 4, 2, 1, 16, vocab_size=2000),
    "delta-160m": qwen3_5(1024, 3584, 8, 8, 2, 16, vocab_size=32000),  # Qwen3.5-0.8B's layers, a third of them
    "tiny-mamba": granite_h(128, 352, 6, 4, 2, 8, 32, 2000),
    "mamba-310m": granite_h(1536, 4096, 8, 12, 4, 48, 128, 32000),  # Granite 4.0 H 1B's layers, a fifth of them
    "qwen3-0.6b": qwen3(1024, 3072, 28, 16),
    "qwen3-1.7b": qwen3(2048, 6144, 28, 16),
    "qwen3-4b": qwen3(2560, 9728, 36, 32),
    "qwen3-8b": qwen3(4096, 12288, 36, 32, tie_word_embeddings=False),
    "qwen3-14b": qwen3(5120, 17408, 40, 40, tie_word_embeddings=False),
    # Llama-3.1's rope_scaling is left out: it changes no amount of work.
    "llama-3.1-8b": llama(4096, 14336, 32, 32, 8, 128256, rope_theta=5e5, max_position_embeddings=131072),
}
RANK, ALPHA, LEARNING_RATE = 16, 32, 1e-4
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
DELTA_NET = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
MAMBA, SHARED_MLP = ["in_proj", "out_proj"], ["input_linear", "output_linear"]


def targets(config):
    """The modules that get an adapter: experts don't."""
    if "linear_num_value_heads" in config:
        return ATTENTION + DELTA_NET + MLP
    if "mamba_n_heads" in config:
        return ATTENTION + MAMBA + SHARED_MLP
    return ATTENTION if "num_experts" in config else ATTENTION + MLP


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a step's rows reach the programs. `length` tokens are a pack of `rows` rows, packs are never larger or smaller."""

    name: str
    length: int
    rows: int
    packs: int  # in a micro-batch
    accumulate: int = 1  # micro-batches in a step

    @property
    def packed(self):
        return self.name == "packed"

    @property
    def same_shape(self):
        """Has each micro-batch of every program the same shape?"""
        return self.name != "padded"

    @property
    def micro_rows(self):
        return self.packs * self.rows

    @property
    def step_rows(self):
        return self.micro_rows * self.accumulate

    @property
    def step_tokens(self):
        return self.length * self.packs * self.accumulate


def layouts(model, device):
    """The layouts of a size by name: instruction rows that peers pad, the same packed, and rows of one length of which
    every token is a label."""
    if device == "cuda":
        length, packs = (4096, 1) if model == "llama-3.1-8b" else (2048, 2)
        found = [Layout("padded", length, length // 128, 1, 4), Layout("packed", length, length // 128, packs, 4),
                 Layout("fixed", length, 1, packs, 4)]
    elif model.startswith("tiny"):
        found = [Layout("padded", 256, 4, 1), Layout("packed", 256, 4, 2), Layout("fixed", 128, 1, 2)]
    elif model in ("57m", "135m", "moe-500m", "oss-500m", "delta-160m", "mamba-310m"):
        found = [Layout("padded", 1024, 8, 1), Layout("packed", 1024, 8, 2), Layout("fixed", 512, 1, 4)]
    else:
        found = [Layout("fixed", 512, 1, 2)]
    return {layout.name: layout for layout in found}


def mixer_shapes(config, layer):
    """The linear modules [in, out] of a layer's attention or of what is in its place, the output's last."""
    hidden, width = config["hidden_size"], config["head_dim"]
    if config.get("layer_types", [])[layer:layer + 1] == ["mamba"]:
        heads = config["mamba_n_heads"]
        inner = heads * config["mamba_d_head"]
        return [(hidden, 2 * inner + 2 * config["mamba_n_groups"] * config["mamba_d_state"] + heads), (inner, hidden)]
    if config.get("layer_types", [])[layer:layer + 1] == ["linear_attention"]:
        values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        heads = config["linear_num_value_heads"]
        return [(hidden, 2 * keys + values), (hidden, values), (hidden, heads), (hidden, heads), (values, hidden)]
    heads, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    gated = 2 if "linear_num_value_heads" in config else 1
    return [(hidden, gated * heads), (hidden, kv), (hidden, kv), (heads, hidden)]


def flops(config, lengths, labels):
    """Floating-point operations of a LoRA step over rows of `lengths` tokens with `labels` label tokens in all: products
    forward and back to the inputs, none for a frozen weight's gradient, for padding, or behind the last layer's attention for
    a token without a label."""
    tokens, total = sum(lengths), 4 * config["hidden_size"] * config["vocab_size"] * labels
    heads = config["num_attention_heads"] * config["head_dim"]
    passed = config["num_experts_per_tok"] if config["model_type"] == "gpt_oss" else 1  # else it is that of all of them
    mlp = [(config["hidden_size"], passed * config["intermediate_size"])] * 3  # of all experts that a token passes
    if "mamba_n_heads" in config:  # gate and up are one module
        mlp = [(config["hidden_size"], 2 * config["intermediate_size"]), (config["intermediate_size"], config["hidden_size"])]
    adapted_mlp = [] if "num_experts" in config else mlp

    def products(shapes, adapted):
        return 4 * sum(a * b for a, b in shapes) + 6 * RANK * sum(a + b for a, b in adapted)

    for layer in range(config["num_hidden_layers"]):
        mixer = mixer_shapes(config, layer)
        total += products(mixer + mlp, mixer + adapted_mlp) * tokens
        if config.get("layer_types", [])[layer:layer + 1] == ["linear_attention"]:
            total += 21 * config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"] * tokens
        elif config.get("layer_types", [])[layer:layer + 1] == ["mamba"]:
            total += 15 * config["mamba_n_heads"] * config["mamba_d_head"] * config["mamba_d_state"] * tokens
        else:
            total += 6 * heads * sum(s * s for s in lengths)
        if layer + 1 == config["num_hidden_layers"]:
            total -= products(mixer[-1:] + mlp, mixer[-1:] + adapted_mlp) * (tokens - labels)
    return total
