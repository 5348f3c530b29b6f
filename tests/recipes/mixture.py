"""The example's model as a mixture of experts (Mixtral, Qwen2-MoE, gpt-oss), written without PyTorch."""

import json
import math
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


def write_gpt_oss(folder):
    """The example's attention with sinks and windows, beside random experts in mxfp4 as gpt-oss is published."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    hidden, width, layers = config["hidden_size"], 64, config["num_hidden_layers"]
    for key in ("mlp_bias", "pretraining_tp"):
        del config[key]
    kinds = ["sliding_attention", "full_attention"]
    config |= {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "intermediate_size": width, "attention_bias": False,
               "num_local_experts": EXPERTS, "num_experts_per_tok": PER_TOKEN, "sliding_window": 16,
               "layer_types": [kinds[i % 2] for i in range(layers)], "quantization_config": {"quant_method": "mxfp4"}}
    config["head_dim"] = hidden // config["num_attention_heads"]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    draw = random.Random(9)

    def numbers(*shape, spread):
        count = math.prod(shape)
        return "F32", list(shape), struct.pack(f"<{count}f", *(draw.gauss(0, spread) for _ in range(count)))

    def octets(*shape, low, high):
        return "U8", list(shape), bytes(draw.randint(low, high) for _ in range(math.prod(shape)))

    tensors = {name: tensor for name, tensor in harness.read_tensors(base / "model.safetensors").items() if ".mlp." not in name}
    for layer in range(layers):
        block = f"model.layers.{layer}."
        tensors[block + "self_attn.sinks"] = numbers(config["num_attention_heads"], spread=1.0)
        tensors[block + "mlp.router.weight"] = numbers(EXPERTS, hidden, spread=0.2)
        tensors[block + "mlp.router.bias"] = numbers(EXPERTS, spread=0.2)
        for name, rows, columns in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            stack = f"{block}mlp.experts.{name}"
            tensors[stack + "_blocks"] = octets(EXPERTS, rows, columns // 32, 16, low=0, high=255)
            tensors[stack + "_scales"] = octets(EXPERTS, rows, columns // 32, low=120, high=122)
            tensors[stack + "_bias"] = numbers(EXPERTS, rows, spread=0.2)
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder
