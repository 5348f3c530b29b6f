"""Writes goldens/llama, goldens/families and goldens/training: tiny checkpoints of Llama and of the other families with
transformers' logits, ten AdamW steps by PEFT.

usage: make_model_goldens.py            (from any folder; overwrites the goldens beside it)
       make_model_goldens.py --check    (writes nothing: exit code 1 if it would now write other numbers)

The C++ tests read them without Python. Seeded. Weights are stored in bf16, which fp32 holds exactly, to keep the files
small; they are drawn wide, as in tiny_llama.py, so that the logits move with each part of the model.
"""

import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import zlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    import families
    import older_configs
    import reference
    from tiny_llama import to_transformers_4
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

GOLDENS = pathlib.Path(__file__).resolve().parent / "goldens"
VOCABULARY = 64
LENGTHS = (40, 1, 23)
# Past the windows; up to longrope's switch, and past it.
FAMILY_LENGTHS = (families.SWITCH + 1, 1, families.SWITCH)
FOLDERS = ("llama", "families", "training")
STEPS, BATCH = 10, 4

# Wavelengths of head_dim 8 at this base: 6, 63, 628, 6283. One is kept, one is interpolated, two are scaled.
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

# What differs from base_config(), by the folder's name.
VARIANTS = {
    "plain": {},
    "llama3-rope": {"rope_parameters": LLAMA3_ROPE},
    "linear-rope-transformers-4": {"rope_parameters": LINEAR_ROPE},
    "tied": {"tie_word_embeddings": True},
    "biases-head-dim": {"attention_bias": True, "mlp_bias": True, "head_dim": 12},
}


def base_config():
    return dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5,
                bos_token_id=0, eos_token_id=1, attention_dropout=0.0,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def make_checkpoint(folder, variant, seed):
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(base_config() | VARIANTS[variant])))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.15)
            if "norm" in name:
                parameter.add_(1.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    if variant.endswith("transformers-4"):
        to_transformers_4(folder)
        config = json.loads((folder / "config.json").read_text())
        del config["head_dim"]  # those files had none: hidden_size by heads
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def draw_ids(draw, length, vocabulary=VOCABULARY):
    return [draw.randrange(vocabulary) for _ in range(length)]


@torch.no_grad()
def logits(folder, sequences):
    """fp32 [tokens of all sequences, vocabulary]; one sequence at a time, without padding."""
    model = reference.load(folder)
    return torch.cat([model(input_ids=torch.tensor([ids])).logits[0] for ids in sequences])


def make_logits(out):
    out.mkdir(parents=True)
    draw = random.Random(1)
    sequences = [draw_ids(draw, length) for length in LENGTHS]
    write_lines(out / "sequences.jsonl", sequences)
    for seed, variant in enumerate(VARIANTS):
        make_checkpoint(out / variant, variant, seed)
        save_file({"logits": logits(out / variant, sequences)}, out / variant / "logits.safetensors")


def make_families(out):
    out.mkdir(parents=True)
    draw = random.Random(3)
    sequences = [draw_ids(draw, length, families.VOCABULARY) for length in FAMILY_LENGTHS]
    write_lines(out / "sequences.jsonl", sequences)
    for family, variant in families.variants():
        folder = out / family / variant
        seed = zlib.crc32(f"{family}/{variant}".encode())  # of its own: a new variant changes no other one
        families.make_checkpoint(folder, family, variant, torch.bfloat16, seed)
        save_file({"logits": logits(folder, sequences)}, folder / "logits.safetensors")
        old = older_configs.to_transformers_4(families.read_config(folder))
        (folder / "config-transformers-4.json").write_text(json.dumps(old, indent=2) + "\n")


def make_rows():
    """Rows of 8 to 40 ids; the prompt at the front carries no labels."""
    draw = random.Random(2)
    rows = []
    for _ in range(STEPS * BATCH):
        ids = draw_ids(draw, draw.randint(8, 40))
        prompt = draw.randint(1, len(ids) // 2)
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def make_training(base, out):
    """PEFT's ten steps from the same adapter: by fp32, and by bf16, where the base is bf16, the adapter fp32 and
    forward runs under autocast."""
    out.mkdir(parents=True)
    rows = make_rows()
    write_lines(out / "rows.jsonl", rows)
    start = reference.make_adapter(base, out / "start")
    history = {"steps": STEPS, "batch": BATCH}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = reference.with_adapter(base, start, trainable=True, dtype=dtype)
        steps = reference.train(model, rows, out / f"final-{name}", bf16=name == "bf16", batch=BATCH)
        history[name] = {"loss": [loss for loss, _ in steps], "grad_norm": [norm for _, norm in steps]}
    shutil.rmtree(out / "final-bf16")
    (out / "history.json").write_text(json.dumps(history, indent=1) + "\n")
    for folder in (out / "start", out / "final-fp32"):
        (folder / "README.md").unlink()
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = "../../llama/plain"  # not where it was made
        config["target_modules"].sort()  # PEFT writes a set
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def make(out):
    for name in FOLDERS:
        shutil.rmtree(out / name, ignore_errors=True)
    make_logits(out / "llama")
    make_families(out / "families")
    make_training(out / "llama/plain", out / "training")


def distance(a, b):
    """Largest difference, relative to the largest value."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.double(), b.double()
    return ((a - b).abs().max() / b.abs().max()).item()


def json_without_versions(path):
    keep = lambda pairs: {key: value for key, value in pairs if not key.endswith("version")}  # noqa: E731
    return json.loads(path.read_text(), object_pairs_hook=keep)


def differences(made, kept):
    """(what, value, limit) of every number of the goldens; equal files give 0. Limits: the arithmetic of one machine
    differs from another's in the last bits, which ten steps and bf16 enlarge."""
    names = [{path.relative_to(root).as_posix() for name in FOLDERS
              for path in (root / name).rglob("*") if path.is_file()} for root in (made, kept)]
    yield "files that only one side has", float(len(names[0] ^ names[1])), 1e-6
    for name in sorted(names[0] & names[1]):
        if name.endswith(".safetensors"):
            a, b = load_file(made / name), load_file(kept / name)
            if "final-fp32" in name:
                deviation = reference.update_deviation(kept / "training/start", (made / name).parent,
                                                       (kept / name).parent)
                yield name, deviation, 1e-5
            else:
                same = a.keys() == b.keys()
                yield name, max(distance(a[key], b[key]) for key in a) if same else float("inf"), 1e-6
        elif name.endswith("history.json"):
            a, b = json.loads((made / name).read_text()), json.loads((kept / name).read_text())
            for preset, limit in (("fp32", 5e-6), ("bf16", 1e-3)):
                for key in ("loss", "grad_norm"):
                    value = distance(torch.tensor(a[preset][key]), torch.tensor(b[preset][key]))
                    yield f"{name}, {preset} {key}", value, limit if key == "loss" else 10 * limit
        elif name.endswith(".json"):
            yield name, float(json_without_versions(made / name) != json_without_versions(kept / name)), 1e-6
        else:
            yield name, float((made / name).read_bytes() != (kept / name).read_bytes()), 1e-6


def check():
    with tempfile.TemporaryDirectory(prefix="lorikeet-goldens-") as folder:
        made = pathlib.Path(folder)
        make(made)
        wrong = 0
        for what, value, limit in differences(made, GOLDENS):
            print(f"{what}: {value:.2e} (below {limit:.0e})")
            wrong += not value < limit
    if wrong:
        print(f"{wrong} of the goldens are not what this script makes now")
    return 1 if wrong else 0


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if "--help" in arguments else 2
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if arguments:
        return check()
    make(GOLDENS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
