"""Training beside transformers + PEFT on Qwen3-0.6B's shape, where the peers' environments are (benchmarks/peers)."""

import os
import sys

import common


def part(run):
    environments = common.ROOT / "build" / "peers"
    if not (environments / "peft" / "bin" / "python").is_file():
        common.skip(f"no environment of peers in {environments}; benchmarks/peers/setup makes it")
    program = run.command("lora_finetune_single_device")
    if len(program) > 1:
        common.skip("a packed build; the bench starts the programs of a folder")
    if not run.has("bf16"):
        common.skip("the card has no fast bf16, in which the bench runs all programs")
    os.execv(sys.executable, [sys.executable, str(common.ROOT / "benchmarks" / "peers" / "run.py"), program[0], "--model",
                              "qwen3-0.6b", "--peer", "peft", "--repeats", "1", "--steps", "6", "--no-compile", "--device",
                              "cuda", "--json", str(run.folder / "peers.jsonl")])


common.main(part)
