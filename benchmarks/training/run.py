"""Lorikeet against transformers + PEFT on one CPU: LoRA rank 16 on seven projections of a 57M Llama, rows of 1,024
tokens, two a step, bf16. The two run in turn; the ratio of each pair is the figure.

    .venv/bin/python benchmarks/training/run.py build/release/apps/lora_finetune_single_device [--repeats 5]
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from model_57m import make_model

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, ROWS, STEPS = 1024, 2, 6


def make_data(path):
    draw = random.Random(0)
    with path.open("w") as out:
        for _ in range(ROWS * STEPS):
            ids = [draw.randrange(32000) for _ in range(LENGTH)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


@contextlib.contextmanager
def job():
    """A folder with the base model ("model") and the rows ("rows.jsonl")."""
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        make_model(work / "model")
        make_data(work / "rows.jsonl")
        yield work


def start(program, work, number, cpus=None, overrides=()):
    """Starts one of the training programs on the job, on the CPUs `cpus` alone where some are given, with a thread
    for each; returns what finish() wants."""
    model, data = work / "model", work / "rows.jsonl"
    config = work / f"config{number}.yaml"
    config.write_text(
        f"model: {{ path: {model} }}\ndata: {{ train: {{ path: {data}, format: tokens }}, shuffle: false,"
        f" cache_dir: {work / 'cache'} }}\nbatch: {{ global: {ROWS}, micro_tokens: {ROWS * LENGTH} }}\n"
        f"optimizer: {{ lr: 1e-4 }}\ntraining: {{ max_steps: {STEPS} }}\ndevice: cpu\n"
    )
    output = work / f"run{number}"
    environment = {**os.environ, "GOMP_SPINCOUNT": "1000"}
    if cpus:
        environment["OMP_NUM_THREADS"] = str(len(cpus))
    process = subprocess.Popen([program, "--config", str(config), f"checkpoint.output_dir={output}", *overrides],
                               stderr=subprocess.DEVNULL, env=environment,
                               preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
    return process, output


def finish(process, output):
    """Waits for a program; returns its rate, its last loss and the CPU time that it took in all."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{process.args[0]} ended with exit code {process.returncode}")
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    run = json.loads((output / "run.json").read_text())
    return {"tokens_per_second": statistics.median(line["tokens_per_second"] for line in lines[1:]),
            "first_step_seconds": sum(run["phases_seconds"].values()), "loss": lines[-1]["loss"],
            "cpu_seconds": used.ru_utime + used.ru_stime}


def ours(program, work, number):
    return finish(*start(program, work, number))


def peer(work, *options):
    command = [sys.executable, str(HERE / "peft_loop.py"), "--model", str(work / "model"), "--data",
               str(work / "rows.jsonl"),
               "--rows", str(ROWS), "--steps", str(STEPS), *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with job() as work:
        ratios = []
        for number in range(args.repeats):
            a = ours(args.program, work, number)
            b = peer(work)
            ratios.append(a["tokens_per_second"] / b["tokens_per_second"])
            print(json.dumps({"lorikeet": a, "peft": b, "ratio": ratios[-1]}), flush=True)
        print(f"ratio: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
