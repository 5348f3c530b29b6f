"""A model with Mamba 2 layers and stacked experts, made of the example's: see write_granite."""

import json
import shutil

import harness
from delta_net import drawer

HEADS, GROUPS, STATE, TAPS = 6, 2, 16, 4
EXPERTS, PER_TOKEN, WIDTH = 4, 2, 64


def write_granite(folder):
    """Granite 4 H with Mamba 2 layers in place of three of the example's four attentions, and experts beside its MLPs, as published:
    gate and up in one module, each layer's experts in one tensor. The embedding and the MLPs are the example's, all else is drawn."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    for key in ("head_dim", "mlp_bias", "pretraining_tp"):
        del config[key]
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    kinds = ["attention" if i == 2 else "mamba" for i in range(layers)]
    config |= {"model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": kinds,
               "shared_intermediate_size": config["intermediate_size"], "intermediate_size": WIDTH, "num_local_experts": EXPERTS,
               "num_experts_per_tok": PER_TOKEN, "position_embedding_type": "nope", "attention_multiplier": 0.2,
               "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 0.8, "mamba_n_heads": HEADS,
               "mamba_n_groups": GROUPS, "mamba_d_state": STATE, "mamba_d_conv": TAPS,
               "time_step_limit": [0.0, float("inf")]}  # Infinity in the file, as transformers 4 writes it
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    drawn = drawer(11)
    old = harness.read_tensors(base / "model.safetensors")
    tensors = {name: tensor for name, tensor in old.items() if ".layers." not in name or "norm" in name}
    inner = 2 * hidden
    channels = inner + 2 * GROUPS * STATE
    for i, kind in enumerate(kinds):
        layer = f"model.layers.{i}"
        (dtype, shape, gate), (_, _, up) = (old[f"{layer}.mlp.{part}_proj.weight"] for part in ("gate", "up"))
        tensors[f"{layer}.shared_mlp.input_linear.weight"] = dtype, [2 * shape[0], shape[1]], gate + up
        tensors[f"{layer}.shared_mlp.output_linear.weight"] = old[f"{layer}.mlp.down_proj.weight"]
        shapes = {"block_sparse_moe.router.layer": [EXPERTS, hidden], "block_sparse_moe.input_linear": [EXPERTS, 2 * WIDTH, hidden],
                  "block_sparse_moe.output_linear": [EXPERTS, hidden, WIDTH]}
        if kind == "mamba":
            shapes |= {"mamba.in_proj": [inner + channels + HEADS, hidden], "mamba.out_proj": [hidden, inner]}
            tensors |= {f"{layer}.mamba.conv1d.weight": drawn([channels, 1, TAPS], 0.5), f"{layer}.mamba.conv1d.bias": drawn([channels], 0.2),
                        f"{layer}.mamba.A_log": drawn([HEADS], 0.5), f"{layer}.mamba.dt_bias": drawn([HEADS], 0.5, -2.0),
                        f"{layer}.mamba.D": drawn([HEADS], 0.2, 1.0), f"{layer}.mamba.norm.weight": drawn([inner], 0.1, 1.0)}
        else:
            width = hidden // heads
            shapes |= {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [kv_heads * width, hidden],
                       "self_attn.v_proj": [kv_heads * width, hidden], "self_attn.o_proj": [hidden, hidden]}
        tensors |= {f"{layer}.{name}.weight": drawn(shape, 0.05) for name, shape in shapes.items()}
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder
