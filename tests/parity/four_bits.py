"""4-bit quantisation as bitsandbytes defines it, written down plainly: what the program's is compared with.

The code books come from the committed goldens, which bitsandbytes 0.50.2 made, and `equals_goldens` holds this against them.
"""

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file

GOLDENS = pathlib.Path(__file__).parents[1] / "ops" / "goldens" / "quantized.safetensors"
_GOLDENS = load_file(GOLDENS)
BOOKS = {"nf4": _GOLDENS["half.quant_map"], "fp4": _GOLDENS["fp4.quant_map"]}
SCALES_BOOK = _GOLDENS["half.nested_quant_map"]
SCALES_BLOCK = 256


def nearest(values, book):
    """Index of the nearest number of the book for each value."""
    order = torch.argsort(book)
    ascending = book[order].double()
    return order[torch.bucketize(values.double(), (ascending[1:] + ascending[:-1]) / 2)]


def blocks_of(values, size):
    padded = torch.nn.functional.pad(values, (0, -len(values) % size))
    return padded.reshape(-1, size)


def quantize(weight, book="nf4", block=64, nested=True):
    """{"codes", "absmax", ...} by the names of bitsandbytes' checkpoints, and "scales": the absmax as they are read back."""
    values = weight.float().flatten()
    blocks = blocks_of(values, block)
    scales = blocks.abs().amax(1)
    codes = nearest(torch.nan_to_num(blocks / scales[:, None]), BOOKS[book]).flatten()[: len(values)]
    out = {"codes": codes, "scales": scales, "absmax": scales}
    if nested:
        offset = scales.mean()
        parts = blocks_of(scales - offset, SCALES_BLOCK)
        largest = parts.abs().amax(1)
        # On a CPU it looks them up by their place among 65,536 steps from -1 to 1.
        steps = ((torch.nan_to_num(parts / largest[:, None]) + 1) * 32767.5).round()
        numbers = nearest(steps.double() / 32767.5 - 1, SCALES_BOOK)
        out["scales"] = ((SCALES_BOOK[numbers] * largest[:, None]).flatten()[: len(scales)] + offset)
        out |= {"absmax": numbers.flatten()[: len(scales)].to(torch.uint8), "nested_absmax": largest, "offset": offset}
    return out


def numbers(weight, book="nf4", block=64, nested=True):
    """The weight as it is after quantising, fp32."""
    made = quantize(weight, book, block, nested)
    read = BOOKS[book][made["codes"]]
    return (blocks_of(read, block) * made["scales"][:, None]).flatten()[: len(read)].reshape(weight.shape)


def packed(codes):
    """Two codes a byte, the first in the upper half, as bitsandbytes has them: [bytes, 1] uint8."""
    pairs = torch.nn.functional.pad(codes, (0, len(codes) % 2)).reshape(-1, 2)
    return (pairs[:, 0] << 4 | pairs[:, 1]).to(torch.uint8)[:, None]


def is_linear(name):
    return name.endswith("_proj.weight")


def linear_weights(tensors):
    return [name for name in tensors if is_linear(name)]


def dequantized_copy(base, folder, **how):
    """A checkpoint in fp32 whose linear weights were quantised and read back."""
    return changed_copy(base, folder, lambda name, tensor: {name: numbers(tensor, **how)})


def quantized_copy(base, folder, book="nf4", nested=True):
    """The same as bitsandbytes' own checkpoint of it."""

    def companions(name, tensor):
        made = quantize(tensor, book, nested=nested)
        state = {"quant_type": book, "blocksize": 64, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        out = {name: packed(made["codes"]), name + ".absmax": made["absmax"], name + ".quant_map": BOOKS[book]}
        if nested:
            state |= {"nested_blocksize": SCALES_BLOCK, "nested_dtype": "float32", "nested_offset": made["offset"].item()}
            out |= {name + ".nested_absmax": made["nested_absmax"], name + ".nested_quant_map": SCALES_BOOK}
        out[f"{name}.quant_state.bitsandbytes__{book}"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        return out

    changed_copy(base, folder, companions)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": book,
                                     "bnb_4bit_use_double_quant": nested}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def split(folder):
    """The same checkpoint in two files with an index, companions apart from their codes."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    places = {name: files[name.count(".weight.")] for name in tensors}
    for file in files:
        save_file({name: tensor for name, tensor in tensors.items() if places[name] == file}, folder / file, {"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def changed_copy(base, folder, change, chosen=is_linear):
    """A checkpoint with what `change` makes of each of the chosen tensors in their place."""
    folder.mkdir()
    for path in base.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(base / "model.safetensors")
    made = {}
    for name, tensor in tensors.items():
        made |= change(name, tensor) if chosen(name) else {name: tensor}
    save_file({name: tensor.clone().contiguous() for name, tensor in made.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def goldens():
    """name -> (weight, what bitsandbytes reads back, {book, nested})"""
    names = {name.rsplit(".", 1)[0] for name in _GOLDENS if name.endswith(".numbers")}
    return {name: (_GOLDENS[name + ".weight"], _GOLDENS[name + ".numbers"],
                   {"book": "fp4" if name == "fp4" else "nf4", "nested": name + ".nested_absmax" in _GOLDENS}) for name in names}
