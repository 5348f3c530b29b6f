"""Lorikeet on a card: tokens/s on the shapes of peers/sizes.py, the share of the card's product rate, and a traced step's kernels.

    python3 benchmarks/card/run.py PROGRAMS [OTHER ...] --model qwen3-0.6b,llama-3.1-8b [--set precision.matmul=fp8] ...

PROGRAMS is a folder of built programs, or a packed build whose `run NAME` starts one; several take turns. Each --set is a
variant: settings by comma, beside one that has none unless --only-set says so. Weights are random, made on the card by
transformers: so the Python that runs this needs torch and transformers, and with --peft, which runs peers/peft_loop.py beside
the programs, PEFT.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
sys.path[:0] = [str(PEERS), str(HERE)]
import rows  # noqa: E402
import sizes  # noqa: E402
import trace  # noqa: E402
from programs import Lorikeet, complete_lines, flags  # noqa: E402
from tables import name_setting  # noqa: E402


LEAST_STEPS = 5  # two to begin with, two around a traced one, and one that is measured


def last_line(text):
    """For a cell of a table."""
    return (text.strip().splitlines() or ["nothing was said"])[-1].replace("|", "\\|")[-300:]


def python(script, *arguments):
    done = subprocess.run([sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{script.name} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def command(programs):
    """How a folder's, or a packed build's, program for one device is started."""
    name = "lora_finetune_single_device"
    return [programs / "run", name] if (programs / "run").is_file() else [programs / name]


class Shape:
    """A model's checkpoint and rows in `work`."""

    def __init__(self, work, model, layout, device, steps):
        self.model, self.config, self.layout = model, sizes.MODELS[model], sizes.layouts(model, device)[layout]
        self.job = types.SimpleNamespace(
            work=work, layout=self.layout, device=device, steps=steps, checkpoint=work / model, rows=work / f"{model}.jsonl",
            rank=sizes.RANK, alpha=sizes.ALPHA, lr=sizes.LEARNING_RATE, compile=False)
        facts = rows.write_rows(self.job.rows, self.layout, self.config["vocab_size"], steps)
        lengths = [len(row["input_ids"]) for row in facts]
        self.flops = sizes.flops(self.config, lengths, rows.label_tokens(facts)) / steps
        if not (self.job.checkpoint / "config.json").is_file():
            (work / f"{model}.json").write_text(json.dumps(self.config))
            python(PEERS / "make_checkpoint.py", work / f"{model}.json", self.job.checkpoint, device)

    def run_peft(self, setting, limit):
        """A run of transformers + PEFT. Returns as run()."""
        out = pathlib.Path(tempfile.mkdtemp(prefix="peft", dir=self.job.work))
        job, setting = self.job, {name: value for name, value in setting.items() if value}
        (out / "job.json").write_text(json.dumps({
            "model": str(job.checkpoint), "rows": str(job.rows), "device": job.device, "steps": job.steps,
            "layout": dataclasses.asdict(self.layout), "rank": job.rank, "alpha": job.alpha, "lr": job.lr}))
        try:
            done = subprocess.run([sys.executable, str(PEERS / "peft_loop.py"), str(out / "job.json"), str(out / "steps.jsonl"),
                                   *flags(setting)], capture_output=True, text=True, timeout=limit)
            failure = f"exit code {done.returncode}: {last_line(done.stderr)}" if done.returncode != 0 else ""
        except subprocess.TimeoutExpired:
            failure = f"not done within {limit:.0f} s"
        steps = complete_lines(out / "steps.jsonl")
        return [{"step_seconds": step["seconds"], "loss": step["loss"]} for step in steps], [], failure

    def run(self, programs, settings, traced, limit):
        """One run. Returns its steps and its traces' paths, or the words of its failure."""
        out = pathlib.Path(tempfile.mkdtemp(prefix="run", dir=self.job.work))
        words = Lorikeet(self.job, None).command({"dtype": "bf16"}, out)[1:]
        words += [setting for setting in settings.split(",") if setting] + ["checkpoint.save_every_epochs=1"]
        words += [f"metrics.profile_steps=[{traced}]"] if traced else []
        try:
            done = subprocess.run([str(word) for word in [*command(programs), *words]], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return [], [], f"not done within {limit:.0f} s"
        (out / "log").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            return [], [], f"exit code {done.returncode}: {last_line(done.stderr)}"
        steps = [line for line in complete_lines(out / "run" / "metrics.jsonl") if "loss" in line]
        return steps, sorted((out / "run").glob("trace_step_*.json")), ""


def row(shape, name, settings, steps, ceiling, traced):
    # The first steps allocate and load kernels; a traced one is slowed down, and the one behind it not launched ahead.
    steady = [step["step_seconds"] for number, step in enumerate(steps, 1) if number > 2 and number - traced not in (0, 1)]
    seconds = statistics.median(steady)
    rate = shape.layout.step_tokens / seconds
    peak, first = steps[-1].get("memory_peak_bytes"), steps[0]["step_seconds"]
    return (f"| {shape.model} | {name} | {settings or '-'} | {rate:.0f} ({shape.layout.step_tokens / max(steady):.0f} to"
            f" {shape.layout.step_tokens / min(steady):.0f}) | {100 * shape.flops / seconds / ceiling:.0f}% |"
            f" {f'{peak / 1e9:.1f} GB' if peak else '-'} | {f'{first:.2f} s' if first else '-'} | {steps[0]['loss']:.4f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    parser.add_argument("--model", default="qwen3-0.6b", help="by comma")
    parser.add_argument("--layout", default="packed", choices=["padded", "packed", "fixed"])
    parser.add_argument("--set", action="append", default=[], help="settings of a variant, by comma")
    parser.add_argument("--only-set", action="append", default=[], help="as --set, without the variant that has none")
    parser.add_argument("--peft", default="", help="run transformers + PEFT, too: dtypes of peers/peft_loop.py, by comma")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--trace", type=int, default=0, help="a step to trace, in the first round")
    parser.add_argument("--kernels", type=int, default=30, help="rows of a trace's table by name")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--work", type=pathlib.Path, help="a folder for checkpoints, which are kept there; default: a temporary one")
    args = parser.parse_args()
    if args.steps < LEAST_STEPS:
        parser.error(f"--steps: expected at least {LEAST_STEPS}, got {args.steps}")
    rates = json.loads(python(PEERS / "ceiling.py", args.device).splitlines()[-1])
    ceiling = max(rates.values())
    print(f"{datetime.date.today()}, {args.layout} rows, products: bf16 {rates['bf16'] / 1e12:.1f}, fp32"
          f" {rates['fp32'] / 1e12:.1f} TFLOP/s\n\n| model | programs | settings | tokens/s | of the product rate | peak memory |"
          " first step | first loss |\n|---|---|---|---|---|---|---|---|", flush=True)
    traces = []
    with tempfile.TemporaryDirectory(prefix="card") as temporary:
        work = args.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for model in args.model.split(","):
            shape = Shape(work, model, args.layout, args.device, args.steps)
            peft = [{"dtype": dtype, "flat": args.layout == "packed"} for dtype in args.peft.split(",") if dtype]
            for number in range(args.rounds):
                for setting in peft:
                    steps, _, failure = shape.run_peft(setting, args.limit)
                    words = name_setting(setting)
                    print(row(shape, "PEFT", words, steps, ceiling, 0) if not failure else
                          f"| {model} | PEFT | {words} | {failure} |||||", flush=True)
                for settings in args.only_set + ([""] if not args.only_set else []) + args.set:
                    for programs in args.programs:
                        traced = args.trace if number == 0 else 0
                        steps, found, failure = shape.run(programs.resolve(), settings, traced, args.limit)
                        traces += [(" ".join([model, programs.name, settings]), path, trace.summary(path, args.kernels)) for path in found]
                        print(row(shape, programs.name, settings, steps, ceiling, traced) if not failure else
                              f"| {model} | {programs.name} | {settings or '-'} | {failure} |||||", flush=True)
    for name, path, words in traces:
        print(f"\n## {name}, step {path.stem.split('_')[-1]}\n\n{words}")


if __name__ == "__main__":
    main()
