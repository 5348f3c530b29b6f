"""Two ranks on two GPUs, replicated and sharded, have one GPU's losses."""

import ctypes

import common

STEPS = 6


def cards():
    """How many GPUs the driver offers."""
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return 0
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def part(run):
    if cards() < 2:
        common.skip(f"{cards()} GPU")
    config = run.example_config()
    overrides = ["precision.preset=fp32", f"training.max_steps={STEPS}", "batch.micro_tokens=400"]
    run.run("lora_finetune_single_device", "--config", config, f"checkpoint.output_dir={run.folder / 'one'}",
            f"device={run.device}", *overrides)
    words = []
    for strategy in ("replicate", "shard"):
        output = run.folder / strategy
        run.run("lorikeet", "run", "--nproc", 2, "lora_finetune_distributed", "--config", config,
                f"checkpoint.output_dir={output}", "device=cuda", f"distributed.strategy={strategy}", *overrides)
        distance = common.furthest(run.losses(output), run.losses(run.folder / "one"))
        words.append(f"{strategy} within {distance:.1e}")
        if distance > common.FP32_RELATIVE:
            raise common.Failure(f"the losses of {strategy} differ by {distance:.1e}, {common.FP32_RELATIVE:.0e} is allowed")
    return "losses of two ranks and of one: " + ", ".join(words)


common.main(part)
