"""The embedded example learns its form of answer: exact matches on held-out rows, before and after."""

import json

import common

LEAST = 0.8  # 0.955 on a CPU


def part(run):
    output, precision = run.folder / "run", run.half_precision()
    run.run("lora_finetune_single_device", "--config", "recipes/configs/quickstart/tiny_lora.yaml",
            f"checkpoint.output_dir={output}", f"data.cache_dir={run.folder / 'cache'}", f"device={run.device}", *precision)

    def matches(*adapter):
        said = run.run("lorikeet", "eval", common.EXAMPLE / "base", "--data", common.EXAMPLE / "heldout.jsonl",
                       "--exact-match", *adapter, f"device={run.device}", *precision)
        return json.loads(said.splitlines()[-1])["exact_match"]

    before, after = matches(), matches("--adapter", output)
    words = f"exact matches: {before:.3f} before, {after:.3f} after"
    if after < LEAST:
        raise common.Failure(f"{words}, expected {LEAST} or more")
    return words


common.main(part)
