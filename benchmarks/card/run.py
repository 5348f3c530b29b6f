"""Lorikeet on a card: tokens/s on the shapes of peers/sizes.py, the share of the card's product rate, and a traced step's kernels.

    python3 benchmarks/card/run.py PROGRAMS [OTHER ...] --model qwen3-0.6b,llama-3.1-8b [--set precision.matmul=fp8] ...

PROGRAMS is a folder of built programs, or a packed build whose `run NAME` starts one; several take turns. Each --set is a
variant: settings by comma, beside one that has none unless --only-set says so. Weights are random, made on the card by
transformers: so the Python that runs this needs torch and transformers, and with --peft, which runs peers/peft_loop.py beside
the programs, PEFT.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
# PEERS first: `run` is the peers', this one is __main__.
sys.path[:0] = [str(PEERS), str(HERE), str(HERE.parents[1] / "scripts" / "support" / "gpu_check")]
import rows  # noqa: E402
import sizes  # noqa: E402
import trace  # noqa: E402
from check import program_command  # noqa: E402
from programs import Lorikeet, PeftLoop, complete_lines  # noqa: E402
from run import Job  # noqa: E402
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


def failure_of(command, limit, log):
    """Runs a program to its end, with its output in a file. Returns what failed, for a cell of a table, or nothing."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"not done within {limit:.0f} s"
    log.write_text(done.stdout + done.stderr)
    return f"exit code {done.returncode}: {last_line(done.stderr)}" if done.returncode != 0 else ""


class Shape:
    """A model's checkpoint and rows, in a folder of its own in `work`."""

    def __init__(self, work, model, layout, device, steps):
        self.job = Job(work / model, model, sizes.MODELS[model], sizes.layouts(model, device)[layout], device, steps, compile=False)
        self.model, self.layout = model, self.job.layout
        self.job.work.mkdir(parents=True, exist_ok=True)
        facts = rows.write_rows(self.job.rows, self.layout, self.job.config["vocab_size"], steps)
        lengths = [len(row["input_ids"]) for row in facts]
        self.flops = sizes.flops(self.job.config, lengths, rows.label_tokens(facts)) / steps
        if not (self.job.checkpoint / "config.json").is_file():
            described = self.job.work / "model.json"
            described.write_text(json.dumps(self.job.config))
            python(PEERS / "make_checkpoint.py", described, self.job.checkpoint, device)

    def run_peft(self, setting, limit):
        """A run of transformers + PEFT by this Python. Returns as run()."""
        out = pathlib.Path(tempfile.mkdtemp(prefix="peft", dir=self.job.work))
        self.job.describe(out / "job.json")
        peft = PeftLoop(self.job)
        failure = failure_of([sys.executable, *peft.command(setting, out)[1:]], limit, out / "log")
        return [{"step_seconds": step["seconds"], "loss": step["loss"]} for step in peft.steps(out)], [], failure

    def run(self, programs, settings, traced, limit):
        """One run. Returns its steps, its traces' paths, and what failed."""
        out = pathlib.Path(tempfile.mkdtemp(prefix="run", dir=self.job.work))
        words = [*Lorikeet(self.job, None).command({"dtype": "bf16"}, out)[1:], *(setting for setting in settings.split(",") if setting)]
        words += [f"metrics.profile_steps={traced}"] if traced else []
        failure = failure_of([*program_command(programs, "lora_finetune_single_device"), *words], limit, out / "log")
        steps = [] if failure else complete_lines(out / "run" / "metrics.jsonl")
        return steps, sorted((out / "run").glob("trace_step_*.json")), failure


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
    parser.add_argument("--compile", action="store_true", help="with --peft: each dtype under torch.compile, too, whose first steps compile")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--trace", type=int, default=0, help="a step to trace, in the first round")
    parser.add_argument("--kernels", type=int, default=30, help="rows of a trace's table by name")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--work", type=pathlib.Path, help="a folder for checkpoints, which are kept there; default: a temporary one")
    args = parser.parse_args()
    if args.compile and not args.peft:
        parser.error("--compile: expected --peft beside it, which it concerns")
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
            flat = {"flat": True} if args.layout == "packed" else {}
            compiled = [{}, {"compile": True}] if args.compile else [{}]
            peft = [{"dtype": dtype, **flat, **extra} for dtype in args.peft.split(",") if dtype for extra in compiled]

            def report(name, settings, steps, failure, traced=0):
                print(row(shape, name, settings, steps, ceiling, traced) if not failure else
                      f"| {model} | {name} | {settings or '-'} | {failure} |||||", flush=True)

            for number in range(args.rounds):
                for setting in peft:
                    steps, _, failure = shape.run_peft(setting, args.limit)
                    report("PEFT", name_setting(setting), steps, failure)
                for settings in [*(args.only_set or [""]), *args.set]:
                    for programs in args.programs:
                        traced = args.trace if number == 0 else 0
                        steps, found, failure = shape.run(programs.resolve(), settings, traced, args.limit)
                        traces += [(" ".join([model, programs.name, settings]), path, trace.summary(path, args.kernels)) for path in found]
                        report(programs.name, settings, steps, failure, traced)
    for name, path, words in traces:
        print(f"\n## {name}, step {path.stem.split('_')[-1]}\n\n{words}")


if __name__ == "__main__":
    main()
