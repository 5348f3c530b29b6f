"""A peer: transformers + PEFT in a plain loop. Writes a line of JSON a step.

    peft_loop.py JOB.json STEPS.jsonl [--dtype bf16|bf16-plain|fp32] [--flat] [--compile]

bf16 is a bf16 base with fp32 adapters under autocast, bf16-plain the same without autocast (adapters' products are fp32
then). --flat runs a packed micro-batch as one long row.
"""

import argparse
import contextlib

import torch
from batches import IGNORED, Job, StepLog
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM


def load(job, dtype):
    """The base model with adapters, on the job's device; PEFT keeps adapters in fp32."""
    # Of gpt-oss, whose sinks it knows no other way to have on a CPU, attention that holds all scores.
    attention = "eager" if AutoConfig.from_pretrained(job.model).model_type == "gpt_oss" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32 if dtype == "fp32" else torch.bfloat16,
                                                 attn_implementation=attention, device_map=job.device)
    model.config.use_cache = False
    lora = LoraConfig(r=job.settings["rank"], lora_alpha=job.settings["alpha"], lora_dropout=0.0,
                      target_modules=job.settings["targets"], task_type="CAUSAL_LM")
    return get_peft_model(model, lora)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("steps")
    parser.add_argument("--dtype", choices=["bf16", "bf16-plain", "fp32"], default="bf16")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    job, log = Job(args.job), StepLog(args.steps)
    model = load(job, args.dtype)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=job.settings["lr"], weight_decay=0.01, fused=True)
    if args.compile:
        model = torch.compile(model, dynamic=False)
    precision = torch.autocast(job.device, dtype=torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()
    for step in range(job.steps):
        first = step * job.accumulate * job.micro_rows
        micro = [job.collate(job.rows[first + i * job.micro_rows:first + (i + 1) * job.micro_rows], args.flat)
                 for i in range(job.accumulate)]
        labels = sum((one["labels"][:, 1:] != IGNORED).sum() for one in micro).to(job.device)
        loss = 0
        for one in micro:
            with precision:
                part = model(**{key: values.to(job.device) for key, values in one.items()}, num_items_in_batch=labels).loss
            part.backward()
            loss += part.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.add(loss)


if __name__ == "__main__":
    main()
