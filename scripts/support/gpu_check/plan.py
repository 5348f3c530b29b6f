"""What the plan says of a step's memory and time against steps of a 57M model on the device."""

import json
import random
import statistics

import common
import models

STEPS, TOKENS, ROWS = 6, 512, 16
MOST = 1.02  # of the planned memory


def part(run):
    models.write_llama(run.folder / "model")
    draw = random.Random(0)
    rows = run.folder / "rows.jsonl"
    with rows.open("w") as file:
        for _ in range(STEPS * ROWS):
            ids = [draw.randrange(1000) for _ in range(TOKENS)]
            file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    output, config = run.folder / "run", run.folder / "config.yaml"
    config.write_text(
        f"model: {{ path: {run.folder / 'model'} }}\n"
        f"data: {{ train: {{ path: {rows}, format: tokens }}, cache_dir: {run.folder / 'cache'} }}\n"
        f"batch: {{ global: {ROWS}, micro_tokens: {TOKENS * ROWS // 2} }}\ncheckpoint: {{ output_dir: {output} }}\n")
    run.run("lora_finetune_single_device", "--config", config, f"device={run.device}", *run.half_precision())
    expected = json.loads((output / "run.json").read_text())["expected_memory_bytes"]
    steps = run.steps(output)
    # The peak is that of libtorch's allocator, which cuBLAS's workspaces come from too.
    planned = sum(expected.values())
    measured = steps[-1]["memory_peak_bytes"]
    for name, value in expected.items():
        print(f"  planned {name}: {value / 1e6:.0f} MB")
    rate = statistics.median(step["tokens_per_second"] for step in steps[1:])
    words = f"planned {planned / 1e6:.0f} MB, peak {measured / 1e6:.0f} MB ({measured / planned:.2f}); {rate:.0f} tokens/s"
    if measured > MOST * planned:
        raise common.Failure("more than planned: " + words)
    return words


common.main(part)
