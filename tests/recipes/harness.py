"""What the recipe tests share: running the programs, reading what they wrote."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "quickstart"
# Other work on the machine must not slow OpenMP's barriers down; two threads give the same bits every time.
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "1000", "OMP_NUM_THREADS": "2"}


class Programs:
    """The executables under test, with a folder of their own for runs and caches."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.temporary = tempfile.TemporaryDirectory(prefix="lorikeet-recipes-")
        self.work = pathlib.Path(self.temporary.name)
        (self.work / "config.yaml").write_text(
            f"model: {{ path: {EXAMPLE / 'base'} }}\n"
            f"data: {{ train: {{ path: {EXAMPLE / 'train.jsonl'}, format: alpaca }}, max_seq_len: 256,"
            f" cache_dir: {self.work / 'cache'} }}\n"
            "batch: { global: 8 }\noptimizer: { lr: 2e-3 }\ndevice: cpu\n"
            "training: { max_steps: 12 }\nlr_scheduler: { warmup_steps: 2, warmup_ratio: null }\n"
            "checkpoint: { save_every_steps: 3, keep_last: 2 }\n"
        )

    def command(self, output, *overrides):
        return [
            str(self.folder / "lora_finetune_single_device"),
            "--config",
            str(self.work / "config.yaml"),
            f"checkpoint.output_dir={output}",
            *overrides,
        ]

    def train(self, output, *overrides, timeout=120):
        return run(self.command(output, *overrides), timeout)

    def verb(self, *arguments, stdin="", timeout=120):
        return run([str(self.folder / "lorikeet"), *map(str, arguments)], timeout, stdin)

    def start(self, output, *overrides):
        return subprocess.Popen(
            self.command(output, *overrides), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def run(command, timeout, stdin=""):
    return subprocess.run(
        command, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
    )


def metrics(output):
    """The lines of metrics.jsonl without what a clock or the allocator decides."""
    measured = ("seconds", "per_second", "tflops", "mfu", "memory")
    lines = (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not any(m in k for m in measured)} for line in lines]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def stop(process, how=signal.SIGKILL):
    process.send_signal(how)
    return process.wait(timeout=60)
