"""Weights in fp8 (e4m3) with scales for blocks, rows or whole matrices, by torch's own dtype."""

import json

import torch
from four_bits import changed_copy, linear_weights
from safetensors import safe_open

LARGEST = 448.0
ROWS, MATRIX = (1, 0), (0, 0)  # 0: all


def scales_of(weight, block):
    """fp32 [rows of blocks, columns of blocks], and the same for each number."""
    rows, cols = (extent or size for extent, size in zip(block, weight.shape, strict=True))
    padded = torch.nn.functional.pad(weight.float().abs(), (0, -weight.shape[1] % cols, 0, -weight.shape[0] % rows))
    largest = padded.unflatten(0, (-1, rows)).unflatten(2, (-1, cols)).amax((1, 3))
    scales = largest / LARGEST
    spread = scales.repeat_interleave(rows, 0).repeat_interleave(cols, 1)
    return scales, spread[: weight.shape[0], : weight.shape[1]]


def quantize(weight, block, scale_dtype=torch.float32, dtype=torch.float8_e4m3fn):
    """(codes, scales, the numbers that they stand for)"""
    scales, _ = scales_of(weight, block)
    scales = scales.to(scale_dtype)
    rows, cols = (extent or size for extent, size in zip(block, weight.shape, strict=True))
    spread = scales.float().repeat_interleave(rows, 0).repeat_interleave(cols, 1)[: weight.shape[0], : weight.shape[1]]
    codes = (weight.float() / spread).clamp(-LARGEST, LARGEST).to(dtype)
    return codes, scales, codes.float() * spread


def dequantized_copy(base, folder, block=ROWS, kept=(), **how):
    """A checkpoint in fp32 whose linear weights were quantised and read back, but those of modules in `kept`."""
    def read_back(name, tensor):
        return {name: tensor if is_kept(name, kept) else quantize(tensor, block, **how)[2]}
    return changed_copy(base, folder, read_back)


def is_kept(name, kept):
    return name.removesuffix(".weight") in kept


# kind -> (block, name of the scales, their dtype, quantization_config)
KINDS = {
    "blocks": ((16, 24), "_scale_inv", torch.float32, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 24]}),
    "rows": (ROWS, "_scale", torch.bfloat16, {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                                              "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                                                  "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}}}}),
    "matrix": (MATRIX, "_scale", torch.float32, {"quant_method": "fp8", "activation_scheme": "static"}),
}


def quantized_copy(base, folder, kind, kept=(), kept_by=None):
    """A checkpoint as tools of that kind write it. Modules in `kept` stay numbers, of which config.json says `kept_by`, or
    their names."""
    block, name_of_scales, scale_dtype, settings = KINDS[kind]

    def companions(name, tensor):
        if is_kept(name, kept):
            return {name: tensor}
        codes, scales, _ = quantize(tensor, block, scale_dtype)
        made = {name: codes, name + name_of_scales: scales.reshape(()) if block == MATRIX else scales}
        if kind == "matrix":
            made[name.removesuffix("weight") + "input_scale"] = torch.ones(())
        return made

    changed_copy(base, folder, companions)
    config = json.loads((folder / "config.json").read_text())
    key = "ignore" if "ignore" in settings else "modules_to_not_convert"
    config["quantization_config"] = {**settings, key: settings.get(key, []) + list(kept if kept_by is None else kept_by)}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def read_back_copy(base, folder, kind, kept=()):
    block, _, scale_dtype, _ = KINDS[kind]
    return dequantized_copy(base, folder, block, kept, scale_dtype=scale_dtype)


def dtypes(folder):
    """The dtypes of a checkpoint's linear weights."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {file.get_tensor(name).dtype for name in linear_weights(file.keys())}
