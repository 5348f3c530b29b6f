"""What saves memory changes no loss: recomputation and offloading, to the bit; and a quantised base has the CPU's losses."""

import common

STEPS = 4
SAME = {
    "recomputed": ["training.activation_checkpointing=full"],
    "activations offloaded": ["training.offload=activations"],
    "weights offloaded": ["training.offload=weights"],
    "all of these": ["training.activation_checkpointing=mlp", "training.offload=both"],
}
QUANTIZED = ("nf4", "fp8")


def part(run):
    config, precision = run.example_config(), run.half_precision()

    def losses(name, device, *settings):
        output = run.folder / name.replace(" ", "-")
        run.run("lora_finetune_single_device", "--config", config, f"checkpoint.output_dir={output}", f"device={device}",
                f"training.max_steps={STEPS}", "training.deterministic=true", *settings)
        return run.losses(output)

    wrong = []
    usual = losses("usual", run.device, *precision)
    for name, settings in SAME.items():
        found = losses(name, run.device, *precision, *settings)
        print(f"{name}: {found}, usual {usual}")
        if found != usual:
            wrong.append(f"{name}: the losses differ by {common.furthest(found, usual):.1e}")
    words = []
    for storage in QUANTIZED:
        settings = ["precision.preset=fp32", f"precision.base_storage={storage}"]
        ours, theirs = (losses(f"{storage} on {device.replace(':', '')}", device, *settings) for device in (run.device, "cpu"))
        distance = common.furthest(ours, theirs)
        words.append(f"{storage} within {distance:.1e} of a CPU's")
        if distance > common.FP32_RELATIVE:
            wrong.append(f"{storage}: the losses are {distance:.1e} off a CPU's, {common.FP32_RELATIVE:.0e} is allowed")
    if wrong:
        raise common.Failure("; ".join(wrong))
    return f"{len(SAME)} ways to save memory have the usual losses; " + ", ".join(words)


common.main(part)
