"""Runs the executables and reads what they write."""

import json
import os
import pathlib
import subprocess

# A thread that waits for another one must not keep the core busy that it waits for.
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "1000"} | dict(os.environ)
TOKENS = ["data.train.format=tokens", "device=cpu"]


def _run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


class Programs:
    """`lorikeet` and `lora_finetune_single_device`, each by its path."""

    def __init__(self, lorikeet, finetune):
        self.lorikeet, self.finetune = pathlib.Path(lorikeet).resolve(), pathlib.Path(finetune).resolve()

    def token_nll(self, model, data, adapter=None, preset="fp32"):
        """A list a row with the negative log-likelihood of every label token, and the mean over all of them."""
        command = [self.lorikeet, "eval", model, "--data", data, "--per-token", f"precision.preset={preset}", *TOKENS]
        if adapter is not None:
            command += ["--adapter", adapter]
        *rows, summary = [json.loads(line) for line in _run(command).splitlines()]
        return [row["nll"] for row in rows], summary["loss"]

    def text_labels(self, model, data, adapter):
        """The label tokens of each row of a file of texts, as the adapter's tokenizer has them."""
        lines = _run([self.lorikeet, "eval", model, "--data", data, "--per-token", "--adapter", adapter,
                      "precision.preset=fp32", "device=cpu", "data.train.format=text"]).splitlines()
        return [json.loads(line)["labels"] for line in lines[:-1]]

    def merge(self, model, adapter, output, *more):
        _run([self.lorikeet, "merge", model, adapter, output, "device=cpu", *more])
        return output

    def adapters(self, verb, *arguments, output):
        _run([self.lorikeet, "adapters", verb, *arguments, "--output", output])
        return output

    def train(self, model, data, output, *overrides):
        """Runs a fine-tuning; returns its lines of metrics.jsonl, one an optimizer step."""
        config = output.with_suffix(".yaml")
        config.write_text(f"model: {{path: {json.dumps(str(model))}}}\n"
                          f"data: {{train: {{path: {json.dumps(str(data))}, format: tokens}}, shuffle: false}}\n"
                          f"checkpoint: {{output_dir: {json.dumps(str(output))}}}\n")
        _run([self.finetune, "--config", config, f"data.cache_dir={output.with_suffix('.cache')}", "device=cpu",
              *overrides])
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line]
