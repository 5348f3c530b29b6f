"""gpt-oss' checkpoints as published, with experts in mxfp4 (OCP Microscaling Formats 1.0), written down plainly."""

import json

import torch
from four_bits import changed_copy, nearest

BOOK = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # and the same with a sign
BLOCK, BIAS = 32, 127
SETTINGS = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                "model.embed_tokens", "lm_head"]}


def quantize(weight):
    """Of [experts, rows, columns]: codes and the scales' exponents + 127, uint8, as the files have them, and the numbers."""
    blocks = weight.float().unflatten(-1, (-1, BLOCK))
    exponents = blocks.abs().amax(-1).log2().floor() - 2  # 4 to 8 of them are the largest of the block
    scaled = blocks / exponents.exp2()[..., None]
    codes = nearest(scaled.abs().flatten(), BOOK).reshape(scaled.shape)
    numbers = (BOOK[codes] * scaled.sign() * exponents.exp2()[..., None]).flatten(-2)
    codes = codes + 8 * (scaled < 0)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), (exponents + BIAS).to(torch.uint8), numbers


def is_experts(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def quantized_copy(base, folder):
    """A checkpoint of gpt-oss with its experts as published."""

    def replaced(name, tensor):
        blocks, scales, _ = quantize(tensor.transpose(1, 2))
        return {name + "_blocks": blocks, name + "_scales": scales}

    changed_copy(base, folder, replaced, is_experts)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": SETTINGS}))
    return folder


def dequantized_copy(base, folder):
    """A checkpoint whose experts were quantised and read back."""
    return changed_copy(base, folder, lambda name, tensor: {name: quantize(tensor.transpose(1, 2))[2].transpose(1, 2)}, is_experts)
