"""The example's model as a mixture of experts (Mixtral, Qwen2-MoE), written without PyTorch."""

import json
import random
import shutil
import struct

import harness

EXPERTS, PER_TOKEN = 4, 2


def write_mixture(folder):
    """Each layer's experts are its MLP with the intermediate rows dealt out among them, so that each is another one."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    hidden, width = config["hidden_size"], config["intermediate_size"] // EXPERTS
    for key in ("attention_bias", "mlp_bias", "pretraining_tp"):
        del config[key]
    config |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "intermediate_size": width,
               "num_local_experts": EXPERTS, "num_experts_per_tok": PER_TOKEN, "sliding_window": None}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    draw, tensors = random.Random(5), {}
    for name, (dtype, shape, data) in harness.read_tensors(base / "model.safetensors").items():
        layer, _, module = name.partition(".mlp.")
        if not module:
            tensors[name] = (dtype, shape, data)
            continue
        block, element = f"{layer}.block_sparse_moe", len(data) // (shape[0] * shape[1])
        for e in range(EXPERTS):
            if module == "down_proj.weight":  # columns
                row = shape[1] * element
                part = b"".join(data[i * row + e * width * element:i * row + (e + 1) * width * element] for i in range(shape[0]))
                tensors[f"{block}.experts.{e}.w2.weight"] = (dtype, [hidden, width], part)
            else:
                part = data[e * width * shape[1] * element:(e + 1) * width * shape[1] * element]
                tensors[f"{block}.experts.{e}.{'w1' if module == 'gate_proj.weight' else 'w3'}.weight"] = (
                    dtype, [width, hidden], part)
        logits = [draw.gauss(0, 0.2) for _ in range(EXPERTS * hidden)]
        tensors[f"{block}.gate.weight"] = ("F32", [EXPERTS, hidden], struct.pack(f"<{len(logits)}f", *logits))
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder


def write_shared_mixture(folder):
    """The same with an expert that every token passes, a copy of the last one, and its gate (Qwen2-MoE)."""
    write_mixture(folder)
    config = json.loads((folder / "config.json").read_text())
    width = config["intermediate_size"]
    config |= {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "moe_intermediate_size": width,
               "shared_expert_intermediate_size": width, "norm_topk_prob": False, "qkv_bias": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    draw, tensors = random.Random(7), {}
    for name, tensor in harness.read_tensors(folder / "model.safetensors").items():
        name = name.replace("block_sparse_moe", "mlp")
        for older, newer in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
            name = name.replace(f".{older}.", f".{newer}.")
        tensors[name] = tensor
        last = f".experts.{EXPERTS - 1}."
        if last in name:
            tensors[name.replace(last, ".shared_expert.")] = tensor
        if name.endswith("mlp.gate.weight"):
            logits = [draw.gauss(0, 0.2) for _ in range(tensor[1][1])]
            tensors[name.replace("mlp.gate.", "mlp.shared_expert_gate.")] = (
                "F32", [1, len(logits)], struct.pack(f"<{len(logits)}f", *logits))
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder
