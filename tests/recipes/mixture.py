"""The example's model as a mixture of experts (Mixtral, Qwen2-MoE, Gemma 4, gpt-oss), written without PyTorch."""

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


def write_gemma4(folder):
    """The example's MLPs beside experts made of them as write_mixture's, stacked as Gemma 4 26B is published; heads of 128 in
    the layers without a window, whose keys are their values."""
    write_mixture(folder)
    base = harness.EXAMPLE / "base"
    config = json.loads((base / "config.json").read_text())
    mixture = json.loads((folder / "config.json").read_text())
    hidden, layers, heads, width = (config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"],
                                    mixture["intermediate_size"])
    kinds = ["sliding_attention", "full_attention"]
    layer_types = [kinds[i % 2] for i in range(layers)]
    head_dim, global_head_dim = hidden // heads, 128
    for key in ("hidden_act", "mlp_bias", "pretraining_tp", "rope_theta", "rope_scaling"):
        config.pop(key, None)
    config |= {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "attention_bias": False, "head_dim": head_dim,
               "global_head_dim": global_head_dim, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
               "hidden_size_per_layer_input": 0, "sliding_window": 16, "layer_types": layer_types, "rms_norm_eps": 1e-5,
               "hidden_activation": "gelu_pytorch_tanh", "enable_moe_block": True, "num_experts": EXPERTS, "top_k_experts": PER_TOKEN,
               "moe_intermediate_size": width,
               "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    draw = random.Random(11)

    def numbers(*shape, spread, mean=0.0):
        count = math.prod(shape)
        return "F32", list(shape), struct.pack(f"<{count}f", *(draw.gauss(mean, spread) for _ in range(count)))

    experts = harness.read_tensors(folder / "model.safetensors")
    tensors = {name: tensor for name, tensor in experts.items() if ".layers." not in name}
    tensors |= {name: tensor for name, tensor in harness.read_tensors(base / "model.safetensors").items()
                if ".mlp." in name or name.endswith("layernorm.weight")}
    for layer, kind in enumerate(layer_types):
        block = f"model.layers.{layer}."
        full = kind == "full_attention"
        dim, kv_heads = (global_head_dim, 1) if full else (head_dim, config["num_key_value_heads"])
        for name, rows, columns in (("q", heads * dim, hidden), ("k", kv_heads * dim, hidden), ("v", kv_heads * dim, hidden),
                                    ("o", hidden, heads * dim)):
            if not (full and name == "v"):
                tensors[f"{block}self_attn.{name}_proj.weight"] = numbers(rows, columns, spread=0.05)
        for name in ("q", "k"):
            tensors[f"{block}self_attn.{name}_norm.weight"] = numbers(dim, spread=0.1, mean=0.7)
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm", "post_feedforward_layernorm_1",
                     "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"):
            tensors[f"{block}{name}.weight"] = numbers(hidden, spread=0.1, mean=0.7)
        tensors[f"{block}layer_scalar"] = numbers(1, spread=0.0, mean=0.9)
        tensors[f"{block}router.scale"] = numbers(hidden, spread=0.3, mean=1.0)
        tensors[f"{block}router.per_expert_scale"] = numbers(EXPERTS, spread=0.2, mean=1.0)
        tensors[f"{block}router.proj.weight"] = numbers(EXPERTS, hidden, spread=1.0)
        of = [[experts[f"{block}block_sparse_moe.experts.{e}.{name}.weight"] for name in ("w1", "w3", "w2")] for e in range(EXPERTS)]
        dtype = of[0][0][0]
        tensors[f"{block}experts.gate_up_proj"] = (dtype, [EXPERTS, 2 * width, hidden], b"".join(w1[2] + w3[2] for w1, w3, _ in of))
        tensors[f"{block}experts.down_proj"] = (dtype, [EXPERTS, hidden, width], b"".join(w2[2] for _, _, w2 in of))
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
