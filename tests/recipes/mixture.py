"""The example's model as a mixture of experts (Mixtral), written without PyTorch."""

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
