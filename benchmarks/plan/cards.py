"""What fits on which card, by the plan: the table of docs/memory.md.

    .venv/bin/python benchmarks/plan/cards.py build/release/apps/lorikeet

Nothing is run: each row is `lorikeet plan CONFIG precision.base_storage=nf4 ... --json`, its fastest way that fits, and the
time of it over that of the same card if everything fitted (no recomputation, nothing offloaded, one device's worth of
weights on each).
"""

import json
import subprocess
import sys

# What, config, tokens of a row, arguments that describe the devices, and, where one is asked for, the strategy.
ROWS = [
    ("8B in 8 GB", "llama3_1/8B_lora", 2048, ["--gpu", "RTX 4080", "--device-memory", "7.5", "--devices", "1", "--host-memory", "24"], None),
    ("8B in 24 GB", "llama3_1/8B_lora", 8192, ["--gpu", "RTX 4090", "--devices", "1"], None),
    ("32B in 24 GB", "qwen3/32B_lora", 2048, ["--gpu", "RTX 4090", "--devices", "1", "--host-memory", "60"], None),
    ("70B in 48 GB", "llama3_1/70B_lora", 2048, ["--gpu", "L40S", "--devices", "1"], None),
    ("70B in 80 GB", "llama3_1/70B_lora", 4096, ["--gpu", "H100", "--devices", "1"], None),
    ("14B on two of 12 GB", "qwen3/14B_lora", 2048, ["--gpu", "RTX 3080 Ti", "--devices", "2"], "shard"),
]


def planned(program, config, tokens, arguments):
    command = [program, "plan", config, "precision.base_storage=nf4", f"data.max_seq_len={tokens}", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def best_of(plan, strategy, offload=True):
    """The fastest option that fits; of nearly equal ones the plan's own order counts."""
    if strategy is None and offload:
        return plan["best"]
    fitting = [o for o in plan["options"] if o["fits"] and o["strategy"] == (strategy or "replicate")
               and (offload or o["offload"] == "none")]
    fastest = max((o["tokens_per_second"] for o in fitting), default=0)
    return next((o for o in fitting if 1.03 * o["tokens_per_second"] >= fastest), None)


def unbounded(plan, devices):
    """Tokens a second of the same devices if memory were no matter."""
    plain = [o for o in plan["options"] if o["devices"] == devices and o["strategy"] == "replicate"
             and (o["activation_checkpointing"], o["offload"]) == ("none", "none")]
    return max(o["tokens_per_second"] for o in plain)


def main():
    gib = 2**30
    print("| what | card | row's tokens | strategy | activation_checkpointing | offload | micro_tokens | GiB of the card's | "
          "host GiB | tokens/s | time, with all the memory 1 | without offload |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for what, config, tokens, arguments, strategy in ROWS:
        plan = planned(sys.argv[1], config, tokens, arguments)
        o = best_of(plan, strategy)
        if o is None:
            print(f"| {what} | {plan['device']['name']} | {tokens} | nothing fits |")
            continue
        slower = unbounded(plan, o["devices"]) / o["tokens_per_second"]
        plain = best_of(plan, strategy, offload=False)
        alone = "doesn't fit" if plain is None else (
            f"{plain['activation_checkpointing']}, {plain['micro_tokens']} tokens, {plain['memory_bytes'] / gib:.1f} GiB, "
            f"{unbounded(plan, plain['devices']) / plain['tokens_per_second']:.2f}")
        print(f"| {what} | {plan['device']['name']} | {tokens} | {o['strategy']} | {o['activation_checkpointing']} | {o['offload']} | "
              f"{o['micro_tokens']} | {o['memory_bytes'] / gib:.1f} of {o['available_bytes'] / gib:.1f} | "
              f"{o['host_memory_bytes'] / gib:.0f} | {o['tokens_per_second']:.0f} | {slower:.2f} | {alone} |", flush=True)


if __name__ == "__main__":
    main()
