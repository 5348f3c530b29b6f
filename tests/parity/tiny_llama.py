"""Small random Llama checkpoints of every variant that the family knows, with a tokenizer and rows of token ids.

Weights are drawn wide enough (standard deviation 0.08, norms and biases away from their neutral values) that each
part of the model moves the loss: at Hugging Face's usual 0.02 a tiny model hardly notices its attention, and a
comparison would pass whatever the mask, the scale or the rotary base.
"""

import json
import random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

TEXT = ["The quick brown fox jumps over the lazy dog.", "A parrot that repeats is not a parrot that knows.",
        "Numbers 0 1 2 3 4 5 6 7 8 9 and signs + - * / are read too."] * 4

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

# What differs from base_config(), by the variant's name.
VARIANTS = {
    "plain": {},
    "llama3-rope": {"rope_parameters": LLAMA3_ROPE},
    "linear-rope": {"rope_parameters": LINEAR_ROPE},
    "tied": {"tie_word_embeddings": True},
    "padded": {"pad_token_id": 1},  # the end of a sequence, as in Granite
    "padded-tied": {"pad_token_id": 1, "tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "head-dim": {"head_dim": 24},
    "large-vocabulary": {"vocab_size": 512},
    # Matrices of one, of several and of half a block of quantised scales (256 x 64 numbers).
    "quantizable": {"hidden_size": 128, "intermediate_size": 384},
    "three-layers": {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4},
}


def make_tokenizer():
    """A byte-level BPE with <s> and </s>, trained on TEXT."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def base_config(vocab_size):
    return dict(vocab_size=vocab_size, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5,
                bos_token_id=0, eos_token_id=1, attention_dropout=0.0,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def write_tokenizer(folder):
    make_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make_checkpoint(folder, variant="plain", dtype=torch.float32, seed=0):
    """Writes a checkpoint with its tokenizer, in the layout of the transformers installed; returns the folder."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(**(base_config(tokenizer.get_vocab_size()) | VARIANTS[variant]))
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.08)
            if "norm" in name:
                parameter.add_(1.0)
    model.to(dtype).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def to_transformers_4(folder):
    """Rewrites config.json as transformers 4 wrote it: rope_theta and rope_scaling on top, and torch_dtype."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2))
    return folder


def make_rows(count, seed=1, longest=96, vocabulary=300):
    """Rows of random ids, 8 to `longest` long; a prompt of random length at the front carries no labels."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        ids = [draw.randrange(2, vocabulary) for _ in range(draw.randint(8, longest))]
        prompt = draw.randint(1, len(ids) // 2)
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
