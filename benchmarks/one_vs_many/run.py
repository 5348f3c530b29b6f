"""One device against several: `lorikeet bench scaling` on a Llama of 57M parameters, LoRA rank 16 on all linear layers,
32 rows of 128 random tokens a step, bf16. Writes benchmarks/results/one_vs_many-MACHINE.md.

    .venv/bin/python benchmarks/one_vs_many/run.py build/release/apps cpu --devices 1,2 [--repeats 3] [--steps 6] [a.b=value ...]

MACHINE names the file; with GPUs give device=cuda and a larger batch, e.g. batch.global=256. On a machine that does other
work the ranges say how far the figures can be trusted; the load before the first run is written down, too.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "training"))
from model_57m import make_model

LENGTH, ROWS, MICRO_TOKENS = 128, 32, 1024


def machine():
    """A sentence about the CPU, the memory and the load."""
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown CPU")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return f"{len(os.sched_getaffinity(0))} cores, {cpu}, {memory:.0f} GiB; load average before the first run {load:.1f}"


def make_config(work):
    path = work / "one_vs_many.yaml"
    path.write_text(
        f"model: {{ path: {work / 'model'} }}\ndata: {{ train: {{ path: unused.jsonl }} }}\n"
        f"batch: {{ global: {ROWS}, micro_tokens: {MICRO_TOKENS} }}\noptimizer: {{ lr: 1e-4 }}\ndevice: cpu\n"
    )
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("machine")
    parser.add_argument("--devices", required=True)
    parser.add_argument("--repeats", default="3")
    parser.add_argument("--steps", default="6")
    parser.add_argument("--warmup", default="1")
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    about = machine()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        make_model(work / "model")
        rows = ROWS * (int(args.steps) + int(args.warmup))
        command = [args.programs / "lorikeet", "bench", "scaling", make_config(work), *args.overrides, "--devices", args.devices,
                   "--repeats", args.repeats, "--steps", args.steps, "--warmup", args.warmup, "--synthetic",
                   f"{rows}x{LENGTH}", "--output", work / "result"]
        result = subprocess.run(list(map(str, command)), check=False)
        if not (work / "result" / "scaling.md").exists():
            raise SystemExit(result.returncode)
        text = (work / "result" / "scaling.md").read_text().replace(f"{work}/", "")
    ours = f"benchmarks/one_vs_many/run.py build/release/apps {' '.join(sys.argv[2:])}"
    text = text.replace("\n\nCommand: ", f"\n\nCommand: `.venv/bin/python {ours}`, that is ", 1)
    text = text.replace("\nDate: ", f"\nMachine: {about}. Date: ", 1)
    (ROOT / "benchmarks" / "results" / f"one_vs_many-{args.machine}.md").write_text(text)
    raise SystemExit(result.returncode)


if __name__ == "__main__":
    main()
