"""The committed goldens of transformers and PEFT (tests/parity/goldens) through the programs, on the device.

Every model's per-token losses in fp32, some in the other precisions, and ten steps of training in each.
"""

import array
import concurrent.futures
import json
import math
import os
import pathlib
import shutil

import common
import models

GOLDENS = common.ROOT / "tests" / "parity" / "goldens"
WORKERS = min(8, max(4, os.cpu_count() or 1))  # most of a run's time is its process's start
# Of the mean loss of a model's rows and of ten steps, absolute: a wrong rotary base moves it by 0.02. fp32 sums in another
# order; the others round operands or results to 11, 8 and 11 bits.
LIMITS = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 5e-3, "fp16": 2e-3}
# In bf16 correct ways to compute ten steps were seen up to 3.2e-3 off: native and widened products, other micro-batches.
TEN_STEPS_LIMITS = LIMITS | {"bf16": 8e-3}
# The last six have experts, sinks, gated delta nets, short convolutions, latent attention, Mamba 2: their losses stay within half of the limits by
# our kernels, by the references and with the made-up card's sums. Those of other mixtures are up to 1.6e-2 off, where a token
# between two experts takes the other one.
IN_ALL_PRECISIONS = ("llama/plain", "families/gemma2/plain", "families/gpt_neox/parallel", "families/mixtral/window",
                     "families/gpt_oss/windows", "families/qwen3_5_text/three-taps", "families/lfm2/tied",
                     "families/youtu/tied", "families/bamba/tied")
TEN_STEPS = "ten steps"
TRAINING = ["lora.rank=4", "lora.alpha=8", "lora.dropout=0", "data.packing=true", "data.shuffle=false", "batch.global=4",
            "training.epochs=1", "training.clip_grad_norm=1.0", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01",
            "lr_scheduler.name=cosine", "lr_scheduler.warmup_steps=2"]


def read_logits(file):
    """Rows of fp32 logits."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:8 + size])["logits"]
    assert entry["dtype"] == "F32", file
    numbers = array.array("f", data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
    width = entry["shape"][-1]
    return [numbers[begin:begin + width] for begin in range(0, len(numbers), width)]


def expected_loss(logits, sequences):
    """The mean over all tokens but each sequence's first of -log p, in fp64."""
    begin, terms = 0, []
    for ids in sequences:
        for position, token in enumerate(ids[1:]):
            row = logits[begin + position]
            most = max(row)
            terms.append(most + math.log(sum(math.exp(x - most) for x in row)) - row[token])
        begin += len(ids)
    return sum(terms) / len(terms)


def model_folder(run, name):
    """A golden checkpoint with a tokenizer beside it, which the programs want."""
    folder = run.folder / name.replace("/", "-")
    shutil.copytree(GOLDENS / name, folder)
    models.write_tokenizer(folder, 16)
    return folder


def check_model(run, name, folder, preset):
    sequences = [json.loads(line) for line in (GOLDENS / name.split("/")[0] / "sequences.jsonl").read_text().splitlines()]
    rows = run.folder / f"{name.split('/')[0]}.jsonl"
    loss = expected_loss(read_logits(GOLDENS / name / "logits.safetensors"), sequences)
    said = run.run("lorikeet", "eval", folder, "--data", rows, "data.train.format=tokens", f"precision.preset={preset}",
                   f"device={run.device}")
    return abs(json.loads(said.splitlines()[-1])["loss"] - loss)


def write_rows(run):
    for kind in ("llama", "families"):
        sequences = [json.loads(line) for line in (GOLDENS / kind / "sequences.jsonl").read_text().splitlines()]
        with (run.folder / f"{kind}.jsonl").open("w") as file:
            for ids in sequences:
                if len(ids) > 1:  # one token has no label
                    file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def check_training(run, folder, preset):
    output = run.folder / f"training-{preset}"
    config = run.folder / f"training-{preset}.yaml"
    config.write_text(f"model: {{ path: {folder} }}\n"
                      f"data: {{ train: {{ path: {GOLDENS / 'training' / 'rows.jsonl'}, format: tokens }},"
                      f" cache_dir: {run.folder / ('cache-' + preset)} }}\ncheckpoint: {{ output_dir: {output} }}\n")
    run.run("lora_finetune_single_device", "--config", config, f"lora.init={GOLDENS / 'training' / 'start'}",
            f"precision.preset={preset}", f"device={run.device}", *TRAINING)
    theirs = json.loads((GOLDENS / "training" / "history.json").read_text())["bf16" if preset == "bf16" else "fp32"]["loss"]
    ours = run.losses(output)
    if len(ours) != len(theirs):
        raise common.Failure(f"expected {len(theirs)} steps, got {len(ours)}")
    return max(abs(a - b) for a, b in zip(ours, theirs))


def jobs_of(run):
    """(what, preset, function that gives the distance) of all checks, and the presets that the device doesn't have."""
    names = sorted(str(path.parent.relative_to(GOLDENS)) for path in GOLDENS.glob("*/**/logits.safetensors"))
    folders = {name: model_folder(run, name) for name in names}
    jobs = []
    presets = [preset for preset in LIMITS if run.has(preset)]
    for preset in presets:
        jobs.append((TEN_STEPS, preset, lambda p=preset: check_training(run, folders["llama/plain"], p)))
        for name in names if preset == "fp32" else IN_ALL_PRECISIONS:
            jobs.append((name, preset, lambda n=name, p=preset: check_model(run, n, folders[n], p)))
    return jobs, [preset for preset in LIMITS if preset not in presets]


def part(run):
    write_rows(run)
    jobs, lacking = jobs_of(run)
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(job) for _, _, job in jobs]
        for (what, preset, _), future in zip(jobs, futures):
            limit = (TEN_STEPS_LIMITS if what == TEN_STEPS else LIMITS)[preset]
            try:
                distance = future.result()
            except common.Failure as failure:
                print(failure)
                wrong.append(f"{what} in {preset}: {str(failure).splitlines()[-1]}")
                continue
            verdict = "ok" if distance <= limit else "WRONG"
            print(f"{what}, {preset}: the loss is {distance:.1e} off, {limit:.0e} is allowed: {verdict}", flush=True)
            if verdict != "ok":
                wrong.append(f"{what} in {preset} is {distance:.1e} off")
    if wrong:
        raise common.Failure(f"{len(wrong)} of {len(jobs)}: " + "; ".join(wrong))
    without = f"; the device has no fast {', '.join(lacking)}" if lacking else ""
    return f"{len(jobs)} losses as transformers and PEFT have them{without}"


common.main(part)
