"""A run that stopped and goes on has the adapter of one that made all steps at once, byte for byte."""

import common

HALF, STEPS = 3, 6


def part(run):
    config, precision = run.example_config(), run.half_precision()

    def train(name, steps):
        # A constant rate: with another schedule the first steps of a longer run are other ones.
        run.run("lora_finetune_single_device", "--config", config, f"checkpoint.output_dir={run.folder / name}",
                f"device={run.device}", f"training.max_steps={steps}", "training.deterministic=true", "lora.dropout=0.1",
                "batch.micro_tokens=2048", "lr_scheduler.name=constant", *precision)

    train("whole", STEPS)
    train("halves", HALF)
    train("halves", STEPS)
    if len(run.steps(run.folder / "halves")) != STEPS:
        raise common.Failure(f"expected {STEPS} steps in metrics.jsonl, got {len(run.steps(run.folder / 'halves'))}")
    for file in ("adapter_model.safetensors", f"checkpoints/step_{STEPS}/optimizer.safetensors"):
        if (run.folder / "whole" / file).read_bytes() != (run.folder / "halves" / file).read_bytes():
            raise common.Failure(f"{file} of the run that went on after step {HALF} differs")
    return f"stopped after step {HALF} of {STEPS}: the same bytes in the end"


common.main(part)
