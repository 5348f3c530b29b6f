"""The default bf16 run against runs set to multiply natively or widened: the 57M job of run.py, the three in turn.

    .venv/bin/python benchmarks/training/products.py build/release/apps/lora_finetune_single_device [--repeats 5]

Another kind of CPU is emulated by hiding its instructions from the libraries, for native products with
ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (no AMX), AVX512_CORE (no bf16) or AVX2, for fp32 ones with
MKL_ENABLE_INSTRUCTIONS=AVX2; attention's own kernels don't look at them.
"""

import argparse
import json
import os
import statistics

from run import finish, job, start

RUNS = {"default": [], "native": ["precision.matmul=native"], "widened": ["precision.matmul=widened"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without", choices=["native", "widened"],
                        help="leave one out: without AVX-512, libtorch's native products are plain loops")
    options = parser.parse_args()
    runs = {name: overrides for name, overrides in RUNS.items() if name != options.without}
    rates = {name: [] for name in runs}
    with job() as work:
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")  # the first default run measures
        for repeat in range(options.repeats):
            names = list(runs)[repeat % len(runs):] + list(runs)[:repeat % len(runs)]
            for name in names:
                started = start(options.program, work, f"{repeat}-{name}", overrides=runs[name])
                rates[name].append(finish(*started)["tokens_per_second"])
                products = json.loads((started[1] / "run.json").read_text())["products"]
                print(f"{name}: {rates[name][-1]:.0f} tokens/s, {json.dumps(products)}", flush=True)
    for name, values in rates.items():
        print(f"{name}: {', '.join(f'{v:.0f}' for v in values)} tokens/s, median {statistics.median(values):.0f}")
    faster = max((name for name in runs if name != "default"), key=lambda name: statistics.median(rates[name]))
    ratios = [default / other for default, other in zip(rates["default"], rates[faster])]
    print(f"default / {faster}: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
