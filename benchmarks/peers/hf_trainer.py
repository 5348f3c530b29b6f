"""A peer: transformers' Trainer with a PEFT model. Writes a line of JSON a step.

    hf_trainer.py JOB.json STEPS.jsonl [--dtype bf16|fp32] [--compile]
"""

import argparse
import os
import tempfile
import time

import torch
from batches import Job, StepLog
from peft_loop import load
from transformers import Trainer, TrainerCallback, TrainingArguments


class Steps(TrainerCallback):
    def __init__(self, path):
        self.log, self.end = StepLog(path), None

    def on_step_end(self, args, state, control, **others):
        self.end = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in logs:
            self.log.add(logs["loss"], self.end)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("steps")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    job = Job(args.job)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(args.steps)) as output:
        trainer = Trainer(
            model=load(job, args.dtype), train_dataset=job.rows, data_collator=job.collate, callbacks=[Steps(args.steps)],
            args=TrainingArguments(
                output_dir=output, max_steps=job.steps, per_device_train_batch_size=job.micro_rows,
                gradient_accumulation_steps=job.accumulate, learning_rate=job.settings["lr"], weight_decay=0.01,
                lr_scheduler_type="constant", max_grad_norm=1.0, bf16=args.dtype == "bf16", use_cpu=job.device == "cpu",
                train_sampling_strategy="sequential", remove_unused_columns=False, logging_steps=1, save_strategy="no",
                report_to="none", disable_tqdm=True, torch_compile=args.compile))
        trainer.train()


if __name__ == "__main__":
    main()
