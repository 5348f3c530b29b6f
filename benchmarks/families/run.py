"""Every family's share of the machine's product ceiling beside Llama's, at one size.

    .venv/bin/python benchmarks/families/run.py build/release/apps/lora_finetune_single_device [--rounds 5] [--only gemma2 ...]

Makes a random bf16 checkpoint of each family by transformers (tests/parity/families.py, at the widths below), trains a few
steps of packed rows on each in turn, Llama in every round, and prints for each family the median of its operations a second
(`tflops_per_device` of metrics.jsonl, which counts what the family's layers multiply) over Llama's in the same round, with
the spread over rounds, and the same of CPU seconds for an operation. The ceiling is the same for all: shares compare as
rates do.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"))
import families
import torch

LAYERS, VOCABULARY, TOKENS, ROW, STEPS = 6, 8192, 2048, 512, 4
SIZES = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=LAYERS, num_attention_heads=16, num_key_value_heads=4,
             vocab_size=VOCABULARY, max_position_embeddings=4096)
WINDOW = dict(sliding_window=256)
LAYER_TYPES = dict(layer_types=[families.SLIDING] * (LAYERS - 1) + [families.FULL])
# family -> (variant of tests/parity/families.py, what this size changes of it).
FAMILIES = {
    "llama": (None, {}),
    "mistral": ("window-head-dim", WINDOW | dict(head_dim=64)),
    "qwen2": ("tied-window-unused", {}),
    "qwen3": ("plain", dict(head_dim=64)),
    "phi3": ("window", WINDOW),
    "gpt_neox": ("parallel", dict(intermediate_size=4096)),
    "falcon": ("7b", dict(ffn_hidden_size=4096)),
    "gemma": ("plain", dict(head_dim=64)),
    "gemma2": ("plain", WINDOW | dict(head_dim=64, query_pre_attn_scalar=64, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)),
    "gemma3_text": ("linear-rope", WINDOW | LAYER_TYPES | dict(head_dim=64, query_pre_attn_scalar=64)),
    "olmo2": ("plain", {}),
    "smollm3": ("plain", {}),
    "granite": ("plain", {}),
}


def make_checkpoint(folder, family):
    from tokenizers import Tokenizer, models

    variant, more = FAMILIES[family]
    if variant is None:
        families.FAMILIES["llama"] = {"plain": dict(rope_parameters=families.ROPE)}
        variant = "plain"
    sizes = dict(SIZES)
    if family in ("falcon", "gpt_neox"):
        del sizes["num_key_value_heads"]
    if family == "falcon":
        del sizes["intermediate_size"]
    families.make_checkpoint(folder, family, variant, torch.bfloat16, **(sizes | more))
    Tokenizer(models.BPE(vocab={f"<{i}>": i for i in range(1000)}, merges=[])).save(str(folder / "tokenizer.json"))


def write_rows(path):
    draw = random.Random(0)
    with path.open("w") as out:
        for _ in range(STEPS * TOKENS // ROW):
            ids = [draw.randrange(1000) for _ in range(ROW)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def run(program, model, work):
    """(operations a second, CPU seconds for 10^12 operations) of a run's steps but the first, of the whole run."""
    output = work / "run"
    overrides = [f"model.path={model}", f"data.train.path={work / 'rows.jsonl'}", "data.train.format=tokens", "device=cpu",
                 f"data.cache_dir={work / 'cache'}", f"batch.global={TOKENS // ROW}", f"training.max_steps={STEPS}",
                 f"checkpoint.output_dir={output}", "checkpoint.overwrite=true", "checkpoint.resume=never"]
    config = work / "config.yaml"
    config.write_text("{}\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([program, "--config", str(config), *overrides], check=True, stderr=subprocess.DEVNULL,
                   env={**os.environ, "GOMP_SPINCOUNT": "1000"})
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    done = sum(line["tflops_per_device"] * line["step_seconds"] for line in lines)
    return statistics.median(line["tflops_per_device"] for line in lines[1:]), cpu / done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), help="these, beside Llama")
    args = parser.parse_args()
    names = [name for name in FAMILIES if name == "llama" or args.only is None or name in args.only]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        write_rows(work / "rows.jsonl")
        for name in names:
            make_checkpoint(work / name, name)
        rates = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                rates[name].append(run(args.program, work / name, work))
                print(name, *(f"{value:.3f}" for value in rates[name][-1]), file=sys.stderr, flush=True)
    print("| family | TFLOP/s | over Llama's | CPU seconds a TFLOP over Llama's |")
    print("|---|---|---|---|")
    for name in names:
        ratios = [own[0] / llama[0] for own, llama in zip(rates[name], rates["llama"])]
        cpu = [own[1] / llama[1] for own, llama in zip(rates[name], rates["llama"])]
        print(f"| {name} | {statistics.median(rate for rate, _ in rates[name]):.3f} | {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}) | {statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) |")


if __name__ == "__main__":
    main()
