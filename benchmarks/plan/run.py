"""What `lorikeet plan` says of a run on a CPU against the run itself: peak memory and tokens/s.

    .venv/bin/python benchmarks/plan/run.py build/release/apps [--config NAME ...] [--steps 4]

Makes random Llama checkpoints and data, plans and trains each of the configs below in processes of their own, and prints
a row for each. Memory is the peak less that at start-up; speed is the median of a run's steps after the first.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "memory"))
import run as memory  # noqa: E402

MID = memory.MODELS["57m"]
WIDE = memory.MODELS["wide-vocabulary"]
DEEP = dict(hidden_size=384, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12,
            vocab_size=8000)
# name: (model, shortest and longest row, micro tokens, overrides)
CONFIGS = {
    "mid, packed": (MID, (64, 512), 4096, []),
    "mid, rows apart, recomputed": (MID, (64, 512), 4096,
                                    ["data.packing=false", "training.activation_checkpointing=full"]),
    "mid, fp32, rank 64 on q and v": (MID, (64, 512), 2048,
                                      ["precision.preset=fp32", "lora.rank=64", "lora.target_modules=[q_proj,v_proj]"]),
    "wide vocabulary, rank 8": (WIDE, (32, 256), 2048, ["lora.rank=8"]),
    "deep, long rows, rank 128": (DEEP, (1800, 2048), 2048, ["lora.rank=128"]),
}
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "1000"}


def make_data(path, rows, shortest, longest):
    draw = random.Random(0)
    with path.open("w") as out:
        for _ in range(rows):
            ids = [draw.randrange(1000) for _ in range(draw.randint(shortest, longest))]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def plan_and_run(programs, work, model, lengths, micro_tokens, overrides, steps=4):
    """{"planned": option, "run": facts, "step_bytes", "tokens_per_second"} of one config."""
    work.mkdir()
    memory.make_model(work / "model", model)
    rows = max(round(1.2 * micro_tokens / (sum(lengths) / 2)), 2)  # a full micro-batch and a smaller one
    make_data(work / "rows.jsonl", steps * rows, *lengths)
    config = work / "config.yaml"
    config.write_text(
        f"model: {{ path: {work / 'model'} }}\n"
        f"data: {{ train: {{ path: {work / 'rows.jsonl'}, format: tokens }}, cache_dir: {work / 'cache'} }}\n"
        f"batch: {{ global: {rows}, micro_tokens: {micro_tokens} }}\ndevice: cpu\n"
        f"checkpoint: {{ output_dir: {work / 'run'} }}\n")
    said = subprocess.run([str(programs / "lorikeet"), "plan", str(config), *overrides, "--json"], capture_output=True,
                          text=True, check=True, env=ENVIRONMENT)
    full = "training.activation_checkpointing=full" in overrides
    planned = next(o for o in json.loads(said.stdout)["options"]
                   if o["micro_tokens"] == micro_tokens and o["activation_checkpointing"] == ("full" if full else "none"))
    subprocess.run([str(programs / "lora_finetune_single_device"), "--config", str(config), *overrides], check=True,
                   capture_output=True, env=ENVIRONMENT)
    facts = json.loads((work / "run" / "run.json").read_text())
    lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    return {"planned": planned, "run": facts,
            "step_bytes": lines[-1]["memory_peak_bytes"] - facts["phases_peak_memory_bytes"]["start"],
            "tokens_per_second": statistics.median(line["tokens_per_second"] for line in lines[1:])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--config", choices=CONFIGS, action="append", help="default: all")
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    print("| config | planned MB | measured MB | measured / planned | planned tokens/s | measured tokens/s |")
    print("|---|---|---|---|---|---|")
    for name in args.config or CONFIGS:
        with tempfile.TemporaryDirectory() as temporary:
            found = plan_and_run(args.programs, pathlib.Path(temporary) / "job", *CONFIGS[name], steps=args.steps)
        planned = found["planned"]
        print(f"| {name} | {planned['memory_bytes'] / 1e6:.0f} | {found['step_bytes'] / 1e6:.0f} | "
              f"{found['step_bytes'] / planned['memory_bytes']:.3f} | {planned['tokens_per_second']:.0f} | "
              f"{found['tokens_per_second']:.0f} |", flush=True)
        print({k: round(v / 1e6) for k, v in planned["memory_bytes_by_part"].items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
