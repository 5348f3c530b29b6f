"""Models on bitsandbytes' own 4-bit modules (Linear4bit) on the CPU, by transformers, and the checkpoints it saves of them.

Models are in training mode: in evaluation a Linear4bit multiplies in bf16 wherever the CPU has avx512_bf16, even fp32
inputs. Widths of weights have to be multiples of a block: for others its AVX-512 kernel takes the scales of wrong blocks.
"""

import shutil

import bitsandbytes
import reference
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig


def load(folder, book="nf4", nested=True, dtype=torch.float32, storage=torch.uint8, skip=None):
    """A checkpoint in 4 bits, quantised from its numbers in `dtype` while it is loaded; one that is quantised as it is,
    whatever `book`, `nested` and `storage` say. Computes in `dtype`. `skip`: modules that stay as they are."""
    config = AutoConfig.from_pretrained(folder)
    options = reference.attention(config)
    if not hasattr(config, "quantization_config"):
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=book, bnb_4bit_use_double_quant=nested, bnb_4bit_quant_storage=storage,
            llm_int8_skip_modules=skip)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cpu", **options)
    # Of a quantised checkpoint transformers keeps the dtypes that were saved, and backward decodes to that of the weights then.
    for module in modules(model).values():
        module.compute_dtype = module.weight.quant_state.dtype = dtype
    for parameter in model.parameters():
        if not isinstance(parameter, bitsandbytes.nn.Params4bit):
            parameter.data = parameter.data.to(dtype)
    return model.train()


def modules(model):
    """name -> its Linear4bit modules."""
    return {name: module for name, module in model.named_modules() if isinstance(module, bitsandbytes.nn.Linear4bit)}


def load_in_blocks(folder, block):
    """A checkpoint in nf4 with blocks of another size, which transformers has no setting for."""
    model, plain = load(folder), reference.load(folder)
    for name, module in modules(model).items():
        weight = bitsandbytes.nn.Params4bit(plain.get_submodule(name).weight.detach(), blocksize=block, quant_type="nf4", module=module)
        module.weight = weight.to("cpu")
        assert module.weight.quant_state.blocksize == block
    return model


def save(model, folder, base):
    """The checkpoint that transformers writes of a model, with the tokenizer of `base`."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (base / name).exists():
            shutil.copy(base / name, folder / name)
    return folder


def with_adapter(model, adapter, trainable=False):
    """`model` itself, which is changed, with an adapter by PEFT."""
    return PeftModel.from_pretrained(model, adapter, is_trainable=trainable).train()
