"""The example's model with gated delta nets in place of three of its four attentions (Qwen 3.5), written without PyTorch."""

import json
import random
import shutil
import struct

import harness

KEY_HEADS, VALUE_HEADS, HEAD, TAPS = 2, 4, 32, 4


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
    draw = random.Random(6)

    def drawn(shape, scale, middle=0.0):
        count = 1
        for extent in shape:
            count *= extent
        return "F32", shape, struct.pack(f"<{count}f", *(draw.gauss(middle, scale) for _ in range(count)))

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
