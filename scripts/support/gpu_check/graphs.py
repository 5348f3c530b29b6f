"""Recorded micro-steps (training.cuda_graphs) have the losses of others and leave the same adapter: to the bit where all has to be
deterministic, else, on the way through cuDNN's attention, within 16 bits' rounding."""

import json

import common
import models

STEPS, ROWS = 4, 16
EXACT = None
HALF_RELATIVE = 5e-3  # of losses in 16 bits, whose gradients are summed in another order each time
PASSES = 2 * STEPS  # two micro-batches of four rows a step


def part(run):
    config, precision = run.example_config(), run.half_precision()
    models.write_llama(run.folder / "wide", hidden=128, inner=256, layers=2, heads=2, kv_heads=2, vocabulary=1000)
    models.write_llama(run.folder / "experts", hidden=128, inner=64, layers=2, heads=2, kv_heads=2, vocabulary=1000, experts=8)
    models.write_delta_net(run.folder / "delta-net")
    models.write_short_convolutions(run.folder / "convolutions")
    models.write_latents(run.folder / "latents")
    models.write_mamba(run.folder / "mamba")
    experts = [f"model.path={run.folder / 'experts'}", *precision, "lora.target_modules=[q_proj,v_proj,w1,w2,w3]"]
    wide = [f"model.path={run.folder / 'wide'}", *precision]  # heads of 64
    deterministic = "training.deterministic=true"
    cases = {
        "16 bits": (64, EXACT, [*precision, deterministic]),
        "trained tables": (64, EXACT, [*precision, deterministic, "lora.modules_to_save=[embed_tokens,lm_head]"]),
        "fp32": (64, common.FP32_RELATIVE, ["precision.preset=fp32"]),
        "rows that cuDNN takes": (256, HALF_RELATIVE, wide),
        "experts": (64, EXACT, [*experts, deterministic]),
        # 80 tokens a row: the second chunk of 64, of the delta net and of Mamba 2, isn't full.
        "delta net": (80, EXACT, [f"model.path={run.folder / 'delta-net'}", *precision, deterministic]),
        "convolutions": (64, EXACT, [f"model.path={run.folder / 'convolutions'}", *precision, deterministic]),
        "latent attention": (64, EXACT, [f"model.path={run.folder / 'latents'}", *precision, deterministic]),
        "mamba": (80, EXACT, [f"model.path={run.folder / 'mamba'}", *precision, deterministic]),
    }

    def train(name, length, *settings):
        output, rows = run.folder / name.replace(" ", "-"), run.folder / f"rows-{length}.jsonl"
        # Of one length, each token a label: only shapes that repeat are recorded.
        rows.write_text("".join(json.dumps({"input_ids": [3 + (row * 31 + i * 7) % 90 for i in range(length)]}) + "\n"
                                for row in range(ROWS)))
        run.run("lora_finetune_single_device", "--config", config, f"checkpoint.output_dir={output}", f"device={run.device}",
                f"training.max_steps={STEPS}", f"data.train.path={rows}", "data.train.format=tokens",
                f"data.max_seq_len={length}", "batch.global=8", f"batch.micro_tokens={length * 4}", *settings)
        return output

    for name, (length, limit, settings) in cases.items():
        usual = train(f"{name} usual", length, *settings)
        recorded = train(f"{name} recorded", length, *settings, "training.cuda_graphs=true")
        expected = f"CUDA graphs: {PASSES - 1} of {PASSES} micro-steps were launches of 1 graph"
        if expected not in run.said:
            raise common.Failure(f"{name}: expected '{expected}', the run said: {run.said}")
        ours, theirs = run.losses(recorded), run.losses(usual)
        distance = common.furthest(ours, theirs)
        print(f"{name}: {ours}, without graphs {theirs}")
        if distance > (limit or 0):
            raise common.Failure(f"{name}: the losses differ by {distance:.1e}, {limit or 0:.0e} is allowed")
        adapters = [(folder / "adapter_model.safetensors").read_bytes() for folder in (usual, recorded)]
        if limit is EXACT and adapters[0] != adapters[1]:
            raise common.Failure(f"{name}: the losses are the same, the adapters differ")
    return f"{PASSES - 1} of {PASSES} micro-steps were launches of one graph, in {len(cases)} kinds of run with the losses of others"


common.main(part)
