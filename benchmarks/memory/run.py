"""Peak memory of loading a checkpoint and of a training step, against the weights' size and the plan of docs/memory.md.

    .venv/bin/python benchmarks/memory/run.py build/release/apps/lora_finetune_single_device [--model 1b] [--lengths | --savings]

Makes a random Llama checkpoint (bf16; "1b" takes 2 GB), trains two steps on each of several batch shapes in a process of
its own, and prints for each: peak resident memory after loading, less that at start-up, over the weights' bytes; and the
step's peak, less that at start-up, beside the plan. With --lengths it trains 200 steps of rows of ever new lengths
instead, and prints how the peak grows; with --savings every way to save memory, with bf16, fp8 and 4-bit weights, for --steps
steps of such rows; ONEDNN_MAX_CPU_ISA (AVX512_CORE_BF16, AVX512_CORE) chooses lesser instructions.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

MODELS = {
    "1b": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=20, num_attention_heads=32,
               num_key_value_heads=8, vocab_size=32000),
    "57m": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                num_key_value_heads=4, vocab_size=32000),
    "wide-vocabulary": dict(hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
                            num_key_value_heads=2, vocab_size=128256),
}
# Of other families, made by transformers with random weights: layer norms with biases and a plain MLP beside attention
# (GPT-NeoX); queries and keys normed by head, norms before and behind the blocks (Gemma 3).
FAMILIES = {
    "gpt_neox": dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, vocab_size=32000,
                     use_parallel_residual=True),
    "gemma3_text": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                        num_key_value_heads=4, head_dim=64, vocab_size=32000, sliding_window=128),
}
# (tokens of a micro-batch, overrides)
# What --savings tries on the 57m model: every way to save memory, with a base in bf16, nf4 and fp8.
SAVINGS = [[f"training.activation_checkpointing={grade}", f"training.offload={offload}", f"precision.base_storage={storage}"]
           for storage in ("bf16", "nf4", "fp8") for grade in ("none", "mlp", "full")
           for offload in ("none", "activations", "weights", "both")]
CASES = {
    "1b": [(512, []), (2048, ["training.activation_checkpointing=full"])],
    "57m": [(2048, []), (4096, []), (4096, ["training.activation_checkpointing=full"]), (4096, ["precision.preset=fp32"]),
            (4096, ["lora.rank=128", "lora.alpha=128"])],
    "wide-vocabulary": [(2048, []), (4096, ["precision.preset=fp32"])],
}
# Of --lengths: shortest and longest row, tokens of a micro-batch, overrides.
LENGTHS = {
    "57m": [((16, 512), 1024, []), ((16, 512), 1024, ["data.packing=false"]), ((16, 512), 1024, ["precision.preset=fp32"]),
            ((16, 512), 1024, ["lora.rank=128", "lora.alpha=128"]),
            ((16, 512), 2048, ["training.activation_checkpointing=full"])],
    "wide-vocabulary": [((16, 512), 1024, [])],
    "gpt_neox": [((16, 512), 1024, [])],
    "gemma3_text": [((16, 512), 1024, [])],
}


def make_tokenizer(folder):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={f"<{i}>": i for i in range(1000)}, merges=[])).save(str(folder / "tokenizer.json"))


def make_family(folder, family):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    make_tokenizer(folder)


def make_model(folder, sizes):
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    torch.manual_seed(0)
    d, i, v = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    kv = d // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    draw = lambda *shape: (torch.randn(*shape) * 0.02).to(torch.bfloat16)  # noqa: E731
    tensors = {"model.embed_tokens.weight": draw(v, d), "model.norm.weight": torch.ones(d, dtype=torch.bfloat16),
               "lm_head.weight": draw(v, d)}
    for layer in range(sizes["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for part, shape in {"self_attn.q_proj": (d, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d),
                            "self_attn.o_proj": (d, d), "mlp.gate_proj": (i, d), "mlp.up_proj": (i, d),
                            "mlp.down_proj": (d, i)}.items():
            tensors[name + part + ".weight"] = draw(*shape)
        for part in ("input_layernorm", "post_attention_layernorm"):
            tensors[name + part + ".weight"] = torch.ones(d, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors")
    config = dict(sizes, model_type="llama", architectures=["LlamaForCausalLM"], rms_norm_eps=1e-5, rope_theta=10000.0,
                  max_position_embeddings=8192, tie_word_embeddings=False, torch_dtype="bfloat16", hidden_act="silu",
                  attention_bias=False, mlp_bias=False)
    (folder / "config.json").write_text(json.dumps(config))
    make_tokenizer(folder)


def run(program, model, work, tokens, overrides, lengths=(512, 512), steps=2):
    """Of a run whose steps take as many rows as fill a micro-batch when all are of the longest of `lengths`."""
    draw = random.Random(0)
    rows = tokens // lengths[1]
    data = work / "rows.jsonl"
    with data.open("w") as out:
        for _ in range(steps * rows):
            ids = [draw.randrange(1000) for _ in range(draw.randint(*lengths))]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    config = work / "config.yaml"
    config.write_text(
        f"model: {{ path: {model} }}\ndata: {{ train: {{ path: {data}, format: tokens }}, cache_dir: {work / 'cache'} }}\n"
        f"batch: {{ global: {rows}, micro_tokens: {tokens} }}\ntraining: {{ max_steps: {steps} }}\ndevice: cpu\n")
    output = work / "run"
    command = [program, "--config", str(config), f"checkpoint.output_dir={output}", "checkpoint.overwrite=true", "checkpoint.resume=never",
               *overrides]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env={**os.environ, "GOMP_SPINCOUNT": "1000"})
    facts = json.loads((output / "run.json").read_text())
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    start = facts["phases_peak_memory_bytes"]["start"]
    expected = facts["expected_memory_bytes"]
    return {"weights": facts["frozen_bytes"], "loaded": facts["phases_peak_memory_bytes"]["read model"] - start,
            "step": lines[-1]["memory_peak_bytes"] - start, "by_step": [line["memory_peak_bytes"] - start for line in lines],
            "tokens_per_second": sum(line["tokens"] for line in lines[1:]) / sum(line["step_seconds"] for line in lines[1:]),
            "expected": sum(expected.values()), "parts": expected}


def show_lengths(program, name):
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        make_family(work / "model", name) if name in FAMILIES else make_model(work / "model", MODELS[name])
        for lengths, tokens, overrides in LENGTHS[name]:
            r = run(program, work / "model", work, tokens, overrides, lengths, steps=200)
            peaks = " | ".join(f"{r['by_step'][step - 1] / 1e6:.0f}" for step in (1, 10, 50, 200))
            print(f"| {name} | {lengths[0]} to {lengths[1]} | {' '.join(overrides)} | {peaks} | {r['expected'] / 1e6:.0f} | "
                  f"{r['step'] / r['expected']:.3f} | {r['tokens_per_second']:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", choices=[*MODELS, *FAMILIES], action="append", help="default: all; of --lengths those with such cases")
    parser.add_argument("--lengths", action="store_true", help="200 steps of rows of many lengths")
    parser.add_argument("--savings", action="store_true", help="every way to save memory, on the 57m model, with rows of many lengths")
    parser.add_argument("--steps", type=int, default=50, help="of --savings")
    parser.add_argument("--storage", choices=["bf16", "nf4", "fp8"], help="of --savings: this one alone")
    args = parser.parse_args()
    if args.lengths:
        print("| model | rows' lengths | overrides | step 1 MB | 10 | 50 | 200 | planned MB | step 200 / planned | tokens/s |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name in args.model or LENGTHS:
            show_lengths(args.program, name)
        return
    mb = 1e6
    print("| model | tokens | overrides | weights MB | loaded / weights | step MB | planned MB | step / planned |")
    print("|---|---|---|---|---|---|---|---|")
    chosen = [overrides for overrides in SAVINGS if args.storage is None or overrides[-1].endswith(args.storage)]
    cases = {"57m": [(1024, overrides) for overrides in chosen]} if args.savings else CASES
    rows = {"lengths": (16, 512), "steps": args.steps} if args.savings else {}
    for name in ["57m"] if args.savings else [name for name in args.model or MODELS if name in MODELS]:
        with tempfile.TemporaryDirectory() as temporary:
            work = pathlib.Path(temporary)
            make_model(work / "model", MODELS[name])
            for tokens, overrides in cases[name]:
                r = run(args.program, work / "model", work, tokens, overrides, **rows)
                print(f"| {name} | {tokens} | {' '.join(overrides)} | {r['weights'] / mb:.0f} | {r['loaded'] / r['weights']:.3f} | "
                      f"{r['step'] / mb:.0f} | {r['expected'] / mb:.0f} | {r['step'] / r['expected']:.3f} |", flush=True)
                print({k: round(v / mb) for k, v in r["parts"].items()}, file=sys.stderr)


if __name__ == "__main__":
    main()
