"""Kinds of adapters against plain LoRA on the job of run.py, one CPU: the runs take turns, the ratio of each round is the
figure. With --peer PEFT's DoRA stands beside ours.

    .venv/bin/python benchmarks/training/adapters.py build/release/apps/lora_finetune_single_device [--repeats 5] [--peer]
"""

import argparse
import json
import statistics

from run import finish, job, peer, start

KINDS = {"lora": [], "dora": ["lora.use_dora=true"], "freeze_a": ["lora.freeze_a=true"], "pissa": ["lora.init=pissa_niter_4"],
         "loraplus": ["optimizer.loraplus_lr_ratio=16"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    rates, peaks, peers = {name: [] for name in KINDS}, {}, []
    with job() as work:
        for repeat in range(options.repeats):
            for name, overrides in KINDS.items():
                started = start(options.program, work, f"{repeat}-{name}", overrides=overrides)
                rates[name].append(finish(*started)["tokens_per_second"])
                lines = (started[1] / "metrics.jsonl").read_text().splitlines()
                begin = json.loads((started[1] / "run.json").read_text())["phases_peak_memory_bytes"]["start"]
                peaks[name] = json.loads(lines[-1])["memory_peak_bytes"] - begin
            if options.peer:
                peers.append(peer(work, "--dora")["tokens_per_second"])
    for name, values in rates.items():
        ratios = [value / lora for value, lora in zip(values, rates["lora"])]
        print(f"{name}: median {statistics.median(values):.0f} tokens/s, {statistics.median(ratios):.3f} of LoRA's "
              f"({min(ratios):.3f} to {max(ratios):.3f}), peak {peaks[name] / 1e6:.0f} MB above the start")
    if peers:
        ratios = [ours / theirs for ours, theirs in zip(rates["dora"], peers)]
        print(f"PEFT's DoRA: {statistics.median(peers):.0f} tokens/s, ours {statistics.median(ratios):.2f} times as fast "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
