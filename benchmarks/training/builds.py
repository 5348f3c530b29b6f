"""Builds of lora_finetune_single_device against the first of them: the 57M job on the rows of benchmarks/peers, in turn.

    .venv/bin/python benchmarks/training/builds.py BUILD OTHER [MORE ...] [--layout padded] [--preset bf16] [--repeats 5]

For each build the median rate of its runs and, against the first build in the same round, the median and the spread of the
ratios of rates and of the CPU time of whole runs, which other programs on the machine disturb less. A run's rate is the
median of its steps after the first.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import rows
import sizes
from model_57m import make_model

STEPS = 5


def run(program, work, layout, preset):
    """The rate of a run, the CPU time that it took in all, and its last loss."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=work) as out:
        subprocess.run(
            [program, "--config", work / "config.yaml", f"batch.global={layout.step_rows}",
             f"batch.micro_tokens={layout.length * layout.packs}", f"data.max_seq_len={layout.length}",
             f"precision.preset={preset}", f"checkpoint.output_dir={out}/run"],
            check=True, stderr=subprocess.DEVNULL, env={**os.environ, "GOMP_SPINCOUNT": "1000"})
        lines = [json.loads(line) for line in (pathlib.Path(out) / "run" / "metrics.jsonl").read_text().splitlines()]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"rate": statistics.median(line["tokens_per_second"] for line in lines[1:]), "loss": lines[-1]["loss"],
            "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def ratio(runs, first, key):
    """The median and the spread of the rounds' ratios."""
    found = [run[key] / other[key] for run, other in zip(runs, first)]
    return f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=pathlib.Path)
    parser.add_argument("--layout", choices=["padded", "packed", "fixed"], default="padded")
    parser.add_argument("--preset", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    layout = sizes.layouts("57m", "cpu")[arguments.layout]
    found = [[] for _ in arguments.builds]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        make_model(work / "model")
        rows.write_rows(work / "rows.jsonl", layout, 32000, STEPS)
        (work / "config.yaml").write_text(
            f"model: {{ path: {work / 'model'} }}\nlora: {{ rank: 16, alpha: 32 }}\n"
            f"data: {{ train: {{ path: {work / 'rows.jsonl'}, format: tokens }}, shuffle: false, cache_dir: {work / 'cache'} }}\n"
            f"optimizer: {{ lr: 1e-4 }}\ntraining: {{ max_steps: {STEPS} }}\ndevice: cpu\n")
        for _ in range(arguments.repeats):
            for build, runs in zip(arguments.builds, found):
                runs.append(run(build, work, layout, arguments.preset))
    for build, runs in zip(arguments.builds, found):
        print(f"{build}: {statistics.median(run['rate'] for run in runs):.0f} tokens/s, of the first's rate"
              f" {ratio(runs, found[0], 'rate')}, of its CPU time {ratio(runs, found[0], 'cpu_seconds')},"
              f" last loss {runs[-1]['loss']:.6f}")


if __name__ == "__main__":
    main()
