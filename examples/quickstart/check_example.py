"""Fine-tunes the quickstart's base with PEFT and prints held-out exact match before and after.

    python examples/quickstart/check_example.py [--seeds 1 2 3]

This is the reference for what the quickstart should reach: LoRA rank 16, alpha 32 on all seven
projections, the frozen base stored in bf16, AdamW, cosine schedule, loss on the answer and its end
token only.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

import text

HERE = Path(__file__).parent
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IGNORED = -100
GENERATION_BATCH = 100


def read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def encode(tokenizer: Tokenizer, row: dict[str, str], eos: int) -> tuple[list[int], list[int]]:
    """Ids and labels of a row: BOS, prompt, answer, EOS; labels on the last two."""
    head = tokenizer.encode(text.prompt(row)).ids
    tail = tokenizer.encode(row["output"], add_special_tokens=False).ids + [eos]
    return head + tail, [IGNORED] * len(head) + tail


def pad(rows: list[list[int]], value: int, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    fill = [[value] * (width - len(r)) for r in rows]
    return torch.tensor([f + r if left else r + f for r, f in zip(rows, fill, strict=True)])


@torch.no_grad()
def answer(model, tokenizer: Tokenizer, rows: list[dict[str, str]], eos: int) -> list[str]:
    """Greedy answers, at most 48 tokens each, cut at EOS."""
    model.eval()
    answers = []
    for i in range(0, len(rows), GENERATION_BATCH):
        heads = [tokenizer.encode(text.prompt(row)).ids for row in rows[i : i + GENERATION_BATCH]]
        ids = pad(heads, eos, left=True)
        mask = pad([[1] * len(h) for h in heads], 0, left=True)
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=48,
            do_sample=False,
            pad_token_id=eos,
            eos_token_id=eos,
        )
        for new in out[:, ids.shape[1] :].tolist():
            end = new.index(eos) if eos in new else len(new)
            answers.append(tokenizer.decode(new[:end], skip_special_tokens=False))
    return answers


def exact_match(answers: list[str], rows: list[dict[str, str]]) -> float:
    return sum(a == row["output"] for a, row in zip(answers, rows, strict=True)) / len(rows)


def load_base(folder: Path, compute: str) -> LlamaForCausalLM:
    """The base's bf16 weights: kept so for autocast, else widened (fp32 compute, same values)."""
    dtype = torch.bfloat16 if compute == "bf16" else torch.float32
    return LlamaForCausalLM.from_pretrained(folder, dtype=dtype)


def fine_tune(model, data: list[tuple[list[int], list[int]]], eos: int, args, seed: int) -> None:
    """Plain AdamW; the loss of a step is the mean over its label tokens."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=args.lr, weight_decay=0.01)
    total = args.epochs * math.ceil(len(data) / args.batch)
    warmup = math.ceil(0.03 * total)

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    shuffle = torch.Generator().manual_seed(seed)
    model.train()
    for epoch in range(args.epochs):
        losses = []
        for chosen in torch.randperm(len(data), generator=shuffle).split(args.batch):
            rows = [data[i] for i in chosen.tolist()]
            loss = model(
                input_ids=pad([ids for ids, _ in rows], eos),
                attention_mask=pad([[1] * len(ids) for ids, _ in rows], 0),
                labels=pad([labels for _, labels in rows], IGNORED),
            ).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"  epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=HERE, help="holds base/ and the rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--compute", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wrong", type=int, default=5, help="wrong answers to print a seed")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.compute == "bf16")
    tokenizer = Tokenizer.from_file(str(args.folder / "base" / "tokenizer.json"))
    train = read_rows(args.folder / "train.jsonl")
    held_out = read_rows(args.folder / "heldout.jsonl")

    if (train, held_out) != text.quickstart()[1:]:
        raise SystemExit("the rows are not those that make_example.py writes: run it again")

    for seed in args.seeds:
        torch.manual_seed(seed)
        model = load_base(args.folder / "base", args.compute)
        eos = model.config.eos_token_id
        data = [encode(tokenizer, row, eos) for row in train]
        lora = LoraConfig(
            r=args.rank, lora_alpha=2 * args.rank, target_modules=TARGETS, task_type="CAUSAL_LM"
        )
        with autocast:
            before = answer(model, tokenizer, held_out, eos)
            model = get_peft_model(model, lora)
            begun = time.monotonic()
            fine_tune(model, data, eos, args, seed)
            seconds = time.monotonic() - begun
            after = answer(model, tokenizer, held_out, eos)
        for row, old, new in list(zip(held_out, before, after, strict=True))[:5]:
            print(f"  asked:  {row['instruction']} {row['input']}".rstrip())
            print(f"  before: {old!r}\n  after:  {new!r}")
        pairs = zip([row["output"] for row in held_out], after, strict=True)
        wrong = [(expected, got) for expected, got in pairs if expected != got]
        for expected, got in wrong[: args.wrong]:
            print(f"  wrong:  expected {expected!r}, got {got!r}")
        print(
            f"seed {seed}: exact match {exact_match(before, held_out):.1%} -> "
            f"{exact_match(after, held_out):.1%}; training took {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
