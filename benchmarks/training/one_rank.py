"""The distributed program with one process against the single-device one: the same 57M job, in turn; the ratio of each
pair is the figure, and both must give the same losses to the bit.

    .venv/bin/python benchmarks/training/one_rank.py build/release/apps [--repeats 7]
"""

import argparse
import json
import pathlib
import statistics

from run import job, ours


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    names = ("lora_finetune_single_device", "lora_finetune_distributed")
    with job() as work:
        ratios = []
        for number in range(args.repeats):
            # Which one is first changes, so that a drift of the machine falls on both.
            order = names if number % 2 == 0 else names[::-1]
            found = {name: ours(args.programs / name, work, f"{number}{name}") for name in order}
            single, distributed = (found[name] for name in names)
            if single["loss"] != distributed["loss"]:
                raise SystemExit(f"the losses differ: {single['loss']} and {distributed['loss']}")
            ratios.append(distributed["tokens_per_second"] / single["tokens_per_second"])
            print(json.dumps({"single": single, "distributed": distributed, "ratio": ratios[-1]}), flush=True)
        print(f"ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
