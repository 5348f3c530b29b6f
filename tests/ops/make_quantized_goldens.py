#!/usr/bin/env python3
"""Writes goldens/quantized.safetensors: small matrices as bitsandbytes quantises and dequantises them on a CPU.

usage: make_quantized_goldens.py    (with the bitsandbytes that scripts/requirements/test.txt pins)

CASE.weight, then what bitsandbytes made of it, by the names of its checkpoints, and CASE.numbers, dequantised to the
weight's dtype. Widths are multiples of a block or odd: for others its AVX-512 kernel takes wrong scales.
"""

import pathlib

import bitsandbytes
import torch
from bitsandbytes import functional
from safetensors.torch import save_file

VERSION = "0.50.2"
# name: rows, columns, dtype, kind, nested
CASES = {
    "two_nested_blocks": (130, 128, torch.bfloat16, "nf4", True),
    "short_last_block": (5, 13, torch.float32, "nf4", True),
    "half": (6, 64, torch.float16, "nf4", True),
    "plain_scales": (6, 64, torch.float32, "nf4", False),
    "fp4": (6, 64, torch.float32, "fp4", True),
}


def weight(rows, columns, dtype):
    values = torch.randn(rows, columns) * 0.02
    values[0] = 0  # a block of zeros
    values[1, :4] *= 30
    return values.to(dtype)


def main():
    assert bitsandbytes.__version__ == VERSION, bitsandbytes.__version__
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tensors, metadata = {}, {"bitsandbytes": VERSION}
    for name, (rows, columns, dtype, kind, nested) in CASES.items():
        original = weight(rows, columns, dtype)
        codes, state = functional.quantize_4bit(original, blocksize=64, quant_type=kind, compress_statistics=nested)
        packed = {key: value.clone() for key, value in state.as_dict(packed=True).items()}
        packed |= {"weight": original, "codes": codes, "numbers": functional.dequantize_4bit(codes, state)}
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in packed.items()}
        if nested:
            metadata[f"{name}.offset"] = repr(state.offset.item())
    save_file(tensors, pathlib.Path(__file__).parent / "goldens/quantized.safetensors", metadata)


if __name__ == "__main__":
    main()
