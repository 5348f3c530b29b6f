"""Recorded micro-steps (training.cuda_graphs) have the losses of others, bit for bit, and leave the same adapter."""

import json

import common

STEPS, ROWS, LENGTH = 8, 16, 128


def part(run):
    config, precision = run.example_config(), run.half_precision()
    rows = run.folder / "rows.jsonl"
    # Of one length, each token a label: only shapes that repeat are recorded.
    tokens = [[3 + (row * 31 + i * 7) % 90 for i in range(LENGTH)] for row in range(ROWS)]
    rows.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in tokens))

    def train(name, *settings):
        output = run.folder / name
        run.run("lora_finetune_single_device", "--config", config, f"checkpoint.output_dir={output}",
                f"device={run.device}", f"training.max_steps={STEPS}", "training.deterministic=true",
                f"data.train.path={rows}", "data.train.format=tokens", f"data.max_seq_len={LENGTH}",
                "batch.global=8", f"batch.micro_tokens={LENGTH * 4}", *precision, *settings)
        return output

    usual, recorded = train("usual"), train("recorded", "training.cuda_graphs=true")
    expected = f"CUDA graphs: {2 * STEPS - 1} of {2 * STEPS} micro-steps were launches of 1 graph"
    if expected not in run.said:
        raise common.Failure(f"expected '{expected}', the run said: {run.said}")
    ours, theirs = run.losses(recorded), run.losses(usual)
    if ours != theirs:
        raise common.Failure(f"the losses differ by {common.furthest(ours, theirs):.1e}")
    if (recorded / "adapter_model.safetensors").read_bytes() != (usual / "adapter_model.safetensors").read_bytes():
        raise common.Failure("the losses are the same, the adapters differ")
    return f"{2 * STEPS - 1} of {2 * STEPS} micro-steps were launches of one graph, with the bytes of others in the end"


common.main(part)
