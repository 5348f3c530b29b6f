"""Makes the quickstart: a tiny pretrained base, its tokenizer, and the training and held-out rows.

    python examples/quickstart/make_example.py [--steps N] [--out FOLDER]

Everything follows from the seed, the thread count, the versions of torch and tokenizers, and the
kind of processor: the same ones give the same files.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

import text

THREADS = 1
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
VOCABULARY = 1280
CONTEXT = 512

# The pattern of Llama 3.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE as Llama 3 has it, trained on `texts`."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single=f"{BOS} $A",
                pair=f"{BOS} $A {BOS}:1 $B:1",
                special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
            ),
        ]
    )
    return tokenizer


def make_model(tokenizer: Tokenizer) -> LlamaForCausalLM:
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=bos,
        eos_token_id=eos,
        initializer_range=0.05,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=bos, eos_token_id=eos, do_sample=False, max_new_tokens=48
    )
    return model


def windows(tokenizer: Tokenizer, rng: random.Random, entities: list[text.Entity], length: int):
    """Endless rows of `length` ids: whole passages one after another, the last one cut."""
    eos = tokenizer.token_to_id(EOS)
    window: list[int] = []
    while True:
        for encoding in tokenizer.encode_batch(list(text.pretraining_texts(rng, entities))):
            window += encoding.ids + [eos]
            if len(window) >= length:
                yield window[:length]
                window = []


def pretrain(
    model: LlamaForCausalLM,
    stream,
    steps: int,
    batch: int,
    peak_lr: float,
) -> None:
    """AdamW with warm-up and a cosine to a twentieth of the peak; next-token loss on every token."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=peak_lr,
        betas=(0.9, 0.98),
        fused=True,
    )
    warmup = min(200, steps // 10)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = (step - warmup) / max(1, steps - warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model.train()
    begun = time.monotonic()
    for step in range(steps):
        ids = torch.tensor([next(stream) for _ in range(batch)])
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step + 1 == steps:
            elapsed = time.monotonic() - begun
            rate = (step + 1) * ids.numel() / elapsed
            print(
                f"step {step:5d}  loss {loss.item():.3f}  {elapsed:5.0f} s  {rate:.0f} tokens/s",
                flush=True,
            )


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def write_base(folder: Path, tokenizer: Tokenizer, model: LlamaForCausalLM) -> None:
    """The checkpoint as Hugging Face lays it out, weights in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "special_tokens_map.json", {"bos_token": BOS, "eos_token": EOS})
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": BOS,
            "clean_up_tokenization_spaces": False,
            "eos_token": EOS,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": CONTEXT,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--steps", type=int, default=1600, help="pretraining steps")
    parser.add_argument("--batch", type=int, default=8, help="windows a step")
    parser.add_argument("--window", type=int, default=192, help="tokens a window")
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(text.SEED)
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    entities, train, held_out = text.quickstart()
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "train.jsonl", train)
    write_rows(args.out / "heldout.jsonl", held_out)

    # Two rounds of the world, and the rows, so that prompts and answers take few tokens. The
    # tokenizer counts words; it learns nothing about which prompt has which answer.
    rng = random.Random(text.SEED + 2)
    sample = [t for _ in range(2) for t in text.pretraining_texts(rng, entities)]
    sample += [text.prompt(row) + row["output"] for row in train + held_out]
    tokenizer = make_tokenizer(sample)
    lengths = [len(tokenizer.encode(text.prompt(row) + row["output"]).ids) + 1 for row in train]
    print(f"rows: {len(train)} + {len(held_out)}; tokens a row: up to {max(lengths)}")

    model = make_model(tokenizer)
    print(f"parameters: {model.num_parameters():,}; vocabulary: {tokenizer.get_vocab_size()}")
    stream = windows(tokenizer, random.Random(text.SEED + 3), entities, args.window)
    pretrain(model, stream, args.steps, args.batch, args.lr)
    write_base(args.out / "base", tokenizer, model)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
