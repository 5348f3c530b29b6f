"""The example's model with gated delta nets in place of three of its four attentions (Qwen 3.5), or with gated short convolutions in
place of two (LFM2), written without PyTorch."""

import json
import math
import random
import shutil
import struct

import harness

KEY_HEADS, VALUE_HEADS, HEAD, TAPS = 2, 4, 32, 4
EXPERTS, PER_TOKEN = 4, 2


def drawer(seed):
    """drawn(shape, scale, middle=0): a tensor of normal numbers."""
    draw = random.Random(seed)

    def drawn(shape, scale, middle=0.0):
        count = math.prod(shape)
        return "F32", shape, struct.pack(f"<{count}f", *(draw.gauss(middle, scale) for _ in range(count)))
    return drawn


def write_delta_net(folder):
    """The MLPs and the embedding are the example's; norms are plain, all else is drawn."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    for key in ("mlp_bias", "pretraining_tp"):
        del config[key]
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    config |= {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "layer_types": kinds,
               "linear_num_key_heads": KEY_HEADS, "linear_num_value_heads": VALUE_HEADS, "linear_key_head_dim": HEAD,
               "linear_value_head_dim": HEAD, "linear_conv_kernel_dim": TAPS,
               "rope_parameters": config["rope_parameters"] | {"partial_rotary_factor": 0.25}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    drawn = drawer(6)
    tensors = {}
    for name, (dtype, shape, data) in harness.read_tensors(base / "model.safetensors").items():
        if "norm" in name:
            tensors[name] = drawn(shape, 0.1)  # beside 1
        elif "self_attn" not in name:
            tensors[name] = (dtype, shape, data)
    keys, values = KEY_HEADS * HEAD, VALUE_HEADS * HEAD
    heads, kv, width = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    for i, kind in enumerate(kinds):
        if kind == "full_attention":
            block = f"model.layers.{i}.self_attn"
            shapes = {"q_proj": [2 * heads * width, hidden], "k_proj": [kv * width, hidden], "v_proj": [kv * width, hidden],
                      "o_proj": [hidden, heads * width]}
            tensors |= {f"{block}.{part}.weight": drawn([width], 0.1) for part in ("q_norm", "k_norm")}
        else:
            block = f"model.layers.{i}.linear_attn"
            shapes = {"in_proj_qkv": [2 * keys + values, hidden], "in_proj_z": [values, hidden],
                      "in_proj_b": [VALUE_HEADS, hidden], "in_proj_a": [VALUE_HEADS, hidden], "out_proj": [hidden, values]}
            tensors |= {f"{block}.conv1d.weight": drawn([2 * keys + values, 1, TAPS], 0.5),
                        f"{block}.A_log": drawn([VALUE_HEADS], 0.5), f"{block}.dt_bias": drawn([VALUE_HEADS], 0.5, -2.0),
                        f"{block}.norm.weight": drawn([HEAD], 0.1, 1.0)}
        tensors |= {f"{block}.{part}.weight": drawn(shape, 0.05) for part, shape in shapes.items()}
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder


def write_lfm2(folder):
    """LFM2 with experts behind its first layer, whose MLP and whose embedding are the example's; all else is drawn."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    for key in ("attention_bias", "mlp_bias", "pretraining_tp", "rms_norm_eps"):
        del config[key]
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    width = config["intermediate_size"] // EXPERTS
    kinds = ["full_attention" if i % 2 == 1 else "conv" for i in range(layers)]
    config |= {"model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "layer_types": kinds, "norm_eps": 1e-5,
               "num_dense_layers": 1, "num_experts": EXPERTS, "num_experts_per_tok": PER_TOKEN, "moe_intermediate_size": width,
               "routed_scaling_factor": 1.5}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    drawn = drawer(8)
    old = harness.read_tensors(base / "model.safetensors")
    heads, kv, head = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    tensors = {"model.embed_tokens.weight": old["model.embed_tokens.weight"], "model.embedding_norm.weight": drawn([hidden], 0.1, 1.0)}
    for i, kind in enumerate(kinds):
        layer = f"model.layers.{i}"
        tensors |= {f"{layer}.{norm}.weight": drawn([hidden], 0.1, 1.0) for norm in ("operator_norm", "ffn_norm")}
        if kind == "conv":
            tensors[f"{layer}.conv.conv.weight"] = drawn([hidden, 1, 3], 0.5)
            shapes = {"conv.in_proj": [3 * hidden, hidden], "conv.out_proj": [hidden, hidden]}
        else:
            shapes = {"self_attn.q_proj": [heads * head, hidden], "self_attn.k_proj": [kv * head, hidden],
                      "self_attn.v_proj": [kv * head, hidden], "self_attn.out_proj": [hidden, heads * head]}
            tensors |= {f"{layer}.self_attn.{norm}.weight": drawn([head], 0.1, 1.0) for norm in ("q_layernorm", "k_layernorm")}
        block = f"{layer}.feed_forward"
        if i == 0:
            tensors |= {f"{block}.{new}.weight": old[f"{layer}.mlp.{name}.weight"]
                        for new, name in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj"))}
        else:
            shapes["feed_forward.gate"] = [EXPERTS, hidden]
            tensors[f"{block}.expert_bias"] = drawn([EXPERTS], 0.05)
            for e in range(EXPERTS):
                shapes |= {f"feed_forward.experts.{e}.w1": [width, hidden], f"feed_forward.experts.{e}.w3": [width, hidden],
                           f"feed_forward.experts.{e}.w2": [hidden, width]}
        tensors |= {f"{layer}.{name}.weight": drawn(shape, 0.05) for name, shape in shapes.items()}
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder
