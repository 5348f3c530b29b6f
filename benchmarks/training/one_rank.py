"""The distributed program with one process against the single-device one, on the 57M job.

Both run at the same time, each with one thread on a core of its own, and then once more with the cores exchanged:
whatever else the machine does falls on both alike, and a faster core cancels out of the geometric mean of the two.
Compared are the rates (distributed over single: above 1 it is the faster one) and the CPU time of the whole programs,
and both must give the same losses to the bit.

    .venv/bin/python benchmarks/training/one_rank.py build/release/apps [--repeats 7]
"""

import argparse
import json
import math
import os
import pathlib
import statistics

from run import finish, job, start

NAMES = ("lora_finetune_single_device", "lora_finetune_distributed")


def side_by_side(programs, work, number, cores):
    """The ratios distributed / single of one run of both, on `cores` in the order of NAMES."""
    running = [start(programs / name, work, f"{number}{name}", {core}) for name, core in zip(NAMES, cores)]
    single, distributed = (finish(*one) for one in running)
    if single["loss"] != distributed["loss"]:
        raise SystemExit(f"the losses differ: {single['loss']} and {distributed['loss']}")
    print(json.dumps({"cores": cores, "single": single, "distributed": distributed}), flush=True)
    return {key: distributed[key] / single[key] for key in ("tokens_per_second", "cpu_seconds")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two cores are needed")
    ratios = {"tokens_per_second": [], "cpu_seconds": []}
    with job() as work:
        for number in range(args.repeats):
            one = side_by_side(args.programs, work, f"{number}a", cores)
            exchanged = side_by_side(args.programs, work, f"{number}b", cores[::-1])
            for key, values in ratios.items():
                values.append(math.sqrt(one[key] * exchanged[key]))
    for key, values in ratios.items():
        print(f"{key}, distributed / single: median {statistics.median(values):.3f}, "
              f"{min(values):.3f} to {max(values):.3f}")


if __name__ == "__main__":
    main()
