"""Writes a Hugging Face checkpoint with random weights. Runs in the environment of transformers + PEFT.

    make_checkpoint.py CONFIG.json FOLDER DEVICE

Each layer's outputs are of about the size of its inputs, and logits have a standard deviation of 2: so each label token
has a loss of its own, and a program that trains on other tokens, positions or labels starts at another loss.
"""

import json
import math
import pathlib
import sys

import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    described, folder, device = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]), sys.argv[3]
    kind = described.pop("model_type")
    config = AutoConfig.for_model(kind, **described)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device=device)
    model.tie_weights()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                # A scale of 1, which Qwen 3.5 stores as 0 but for the norm in its delta nets; their other numbers are 0, and so
                # are sinks and biases.
                is_scale = kind != "qwen3_5_text" and name.endswith("norm.weight") or name.endswith("linear_attn.norm.weight")
                weight.fill_(1 if is_scale else 0)
            elif name.endswith("_bias"):  # of all experts
                weight.fill_(0)
            elif "embed_tokens" in name and not config.tie_word_embeddings:
                weight.normal_(std=1)
            else:  # a head that is the embedding's table makes that one's rows as small as its own
                head = "lm_head" in name or "embed_tokens" in name
                weight.normal_(std=(2 if head else 1) / math.sqrt(weight.shape[-1]))
    model.save_pretrained(folder, max_shard_size="5GB")
    # No program reads text here, but all ask for a tokenizer.
    Tokenizer(models.BPE(vocab={f"<{i}>": i for i in range(config.vocab_size)}, merges=[])).save(
        str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    main()
