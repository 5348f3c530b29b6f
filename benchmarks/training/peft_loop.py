"""The peer: transformers + PEFT, a plain loop over packed rows in bf16 autocast. Prints one JSON line."""

import argparse
import json
import math
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="JSON lines of input_ids, all of one length")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rows", type=int, default=2, help="rows a step")
    parser.add_argument("--dora", action="store_true")
    args = parser.parse_args()
    start = time.perf_counter()
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM",
                                             use_dora=args.dora))
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01)
    rows = [json.loads(line)["input_ids"] for line in open(args.data, encoding="utf-8")]
    seconds = []
    first = None
    for step in range(args.steps):
        begin = time.perf_counter()
        ids = torch.tensor([rows[(step * args.rows + i) % len(rows)] for i in range(args.rows)])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
        first = first or time.perf_counter() - start
        assert math.isfinite(loss.item())
    tokens = args.rows * len(rows[0])
    middle = sorted(seconds[1:])[len(seconds[1:]) // 2]
    print(json.dumps({"tokens_per_second": tokens / middle, "first_step_seconds": first, "loss": loss.item()}))


if __name__ == "__main__":
    main()
