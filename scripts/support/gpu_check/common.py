"""What the parts of scripts/gpu-check share: arguments, programs and runs."""

import json
import os
import pathlib
import subprocess
import sys

from check import ROOT, SKIPPED, program_command

# Threads that wait must not keep a core busy.
ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"} | dict(os.environ)
HAS_SECONDS = 20
FP32_RELATIVE = 1e-4  # of losses in fp32: sums in another order, over some AdamW steps
EXAMPLE = ROOT / "examples" / "quickstart"


class Failure(Exception):
    """What is wrong, for the summary."""


class Run:
    """A part's arguments: the folder of the programs, the part's own folder, the device."""

    def __init__(self, arguments):
        self.programs, self.folder, self.device = pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), arguments[2]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.said = ""  # on stderr, by the last program that ended

    def command(self, program, *arguments):
        return [*program_command(self.programs, program), *map(str, arguments)]

    def start(self, program, *arguments):
        print("$", program, *arguments, flush=True)
        return subprocess.Popen(self.command(program, *arguments), env=ENVIRONMENT, cwd=ROOT, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, process, code=0):
        out, said = process.communicate()
        self.said = said
        if process.returncode != code:
            raise Failure(f"{said}\nended with exit code {process.returncode}, expected {code}: "
                          f"{(said.strip().splitlines() or ['nothing was said'])[-1]}")
        return out

    def run(self, program, *arguments):
        return self.finish(self.start(program, *arguments))

    def has(self, preset):
        """Whether the device has fast arithmetic for a precision preset, by the programs themselves; yes where they don't say."""
        words = ["doctor", "--quick", f"device={self.device}", f"precision.preset={preset}"]
        print("$ lorikeet", *words, flush=True)
        try:
            said = subprocess.run(self.command("lorikeet", *words), env=ENVIRONMENT, cwd=ROOT, text=True, capture_output=True,
                                  check=False, timeout=HAS_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        return not any(line.startswith("precision ") and " unfit " in line for line in said.stdout.splitlines())

    def half_precision(self):
        """Settings of a run in 16 bits: none where the device has bf16, which is the default."""
        return [] if self.has("bf16") else ["precision.preset=fp16"]

    def example_config(self):
        """The embedded example with short rows of settings, for runs of some steps."""
        config = self.folder / "config.yaml"
        config.write_text(
            f"model: {{ path: {EXAMPLE / 'base'} }}\n"
            f"data: {{ train: {{ path: {EXAMPLE / 'train.jsonl'}, format: alpaca }}, max_seq_len: 256,"
            f" cache_dir: {self.folder / 'cache'} }}\n"
            "batch: { global: 8 }\noptimizer: { lr: 2e-3 }\nlr_scheduler: { warmup_steps: 2, warmup_ratio: null }\n"
            "checkpoint: { save_every_steps: 100 }\n")
        return config

    def steps(self, output):
        lines = [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line]

    def losses(self, output):
        return [line["loss"] for line in self.steps(output)]


def furthest(ours, theirs):
    """The largest relative difference of two lists of losses."""
    if len(ours) != len(theirs) or not ours:
        raise Failure(f"expected {len(theirs)} losses, got {len(ours)}")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def main(part):
    """Runs `part(run)`, which returns the words of a success; the last line printed is for the summary."""
    try:
        print(part(Run(sys.argv[1:])))
    except Failure as failure:
        print(failure)
        sys.exit(1)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
