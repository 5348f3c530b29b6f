"""Lorikeet against its peers on one machine: the same model, rows, order, rank and targets, the programs in turn.

    benchmarks/peers/setup
    python3 benchmarks/peers/run.py build/release/apps/lora_finetune_single_device --model 57m

Prints a table for each layout and writes every run as a line of JSON beside it (--json). First each peer is tried in all of
its settings (dtype, then torch.compile and the like on the best) in short runs; the rounds leave out those that were more
than a tenth slower than its best. A program is stopped when its last step is recorded: what it saves is not measured.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import rows
import sizes
import tables
from measure import GIVEN_UP, Failed, measure
from programs import ENVIRONMENTS, HERE, complete_lines, programs, variables

TRIAL_STEPS = 3
COMPILE_PATIENCE = 10  # times the limit of a run: the first step compiles
TRIAL_PATIENCE = 1.5  # times as long as a program's quickest trial: such a setting is left out of this layout's rounds
NEARLY = 0.9  # of the rate of the best setting: a trial can't tell such settings apart


@dataclasses.dataclass
class Job:
    """What all programs are given."""

    work: pathlib.Path
    model: str
    config: dict
    layout: sizes.Layout
    device: str
    steps: int
    compile: bool  # may peers try torch.compile?
    rank: int = sizes.RANK
    alpha: int = sizes.ALPHA
    lr: float = sizes.LEARNING_RATE

    @property
    def checkpoint(self):
        return self.work / "checkpoint"

    @property
    def litgpt_checkpoint(self):
        return self.work / "litgpt"

    @property
    def rows(self):
        return self.work / f"{self.layout.name}.jsonl"

    def describe(self, path):
        """Writes job.json, which the PEFT programs read."""
        path.write_text(json.dumps({
            "model": str(self.checkpoint), "rows": str(self.rows), "device": self.device, "steps": self.steps,
            "layout": dataclasses.asdict(self.layout), "rank": self.rank, "alpha": self.alpha, "lr": self.lr,
            "targets": sizes.targets(self.config)}))


def run_script(environment, name, *arguments):
    """What one of the scripts beside this one prints, in a peer's environment."""
    command = [str(word) for word in (ENVIRONMENTS / environment / "bin" / "python", HERE / name, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{name} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def make_checkpoints(work, config, device, litgpt):
    """The base model in `work`: for all, and converted where litgpt takes part."""
    (work / "model.json").write_text(json.dumps(config))
    run_script("peft", "make_checkpoint.py", work / "model.json", work / "checkpoint", device)
    if litgpt:
        run_script("litgpt", "make_litgpt_checkpoint.py", work / "checkpoint", work / "litgpt")


def product_rate(device):
    """{"bf16": FLOP/s, "fp32": FLOP/s} of large products now."""
    return json.loads(run_script("peft", "ceiling.py", device).splitlines()[-1])


class Bench:
    """The runs of one layout."""

    def __init__(self, job, facts, report, limit):
        self.job, self.report, self.limit, self.runs, self.rates = job, report, limit, [], []
        self.lengths = [len(row["input_ids"]) for row in facts]
        self.flops = sizes.flops(job.config, self.lengths, rows.label_tokens(facts)) / job.steps

    def patience(self, program, setting, number):
        """Seconds after which a run is given up."""
        if setting.get("compile"):
            return self.limit * COMPILE_PATIENCE
        others = [run["seconds"] for run in self.tried(program)] if number is None else []
        return min([self.limit, *(TRIAL_PATIENCE * seconds for seconds in others)])

    def run(self, program, setting, number):
        """One run, recorded; a trial where `number` is None."""
        job, out = self.job, pathlib.Path(tempfile.mkdtemp(dir=self.job.work))
        job.describe(out / "job.json")
        environment = dict(os.environ) if program.name == "Lorikeet" else variables(job, os.environ)
        run = {"model": job.model, "device": job.device, "layout": job.layout.name, "round": number,
               "program": program.name, "setting": setting}
        try:
            run.update(measure([str(word) for word in program.command(setting, out)], environment, out,
                               lambda: program.steps(out), TRIAL_STEPS if number is None else job.steps,
                               self.patience(program, setting, number), job.device == "cuda"))
            run["tokens_per_second"] = job.layout.step_tokens / run["step_seconds"]
            run["flops_per_second"] = self.flops / run["step_seconds"]
        except Failed as failure:
            run["error"] = str(failure)
        shutil.rmtree(out, ignore_errors=True)
        self.runs.append(run)
        self.report(run)
        return run

    def measure_products(self, number):
        self.rates.append(product_rate(self.job.device))
        self.report({"layout": self.job.layout.name, "round": number, "products_flops_per_second": self.rates[-1]})

    def trials(self, program, hopeless):
        """Tries a program's settings in short runs; those given up are added to `hopeless`, and what is there isn't tried."""
        for setting in program.choices():
            key = program.name, tables.name_setting(setting)
            if key in hopeless:
                continue
            run = self.run(program, setting, None)
            if run.get("error", "").startswith(GIVEN_UP) and self.patience(program, setting, None) == self.limit:
                hopeless.add(key)
        tried = self.tried(program)
        for extra in program.extras() if tried else []:
            self.run(program, {**max(tried, key=lambda run: run["tokens_per_second"])["setting"], **extra}, None)

    def tried(self, program):
        return [run for run in self.runs
                if run["round"] is None and run["program"] == program.name and "error" not in run]

    def settings(self, program):
        """Those that are run in the rounds: all of Lorikeet's, a peer's best and what is nearly as fast."""
        if program.name == "Lorikeet":
            return program.choices()
        least = NEARLY * max((run["tokens_per_second"] for run in self.tried(program)), default=0)
        return [run["setting"] for run in self.tried(program) if run["tokens_per_second"] >= least]

    def round(self, number, programs):
        """All programs in turn, in another order each round."""
        self.measure_products(number)
        first = number % len(programs)
        for program in programs[first:] + programs[:first]:
            for setting in self.settings(program):
                self.run(program, setting, number)

    def ceiling(self):
        return max(max(rates.values()) for rates in self.rates)


def earlier_trials(path, job, names):
    """The trials of the job's size and layout that earlier runs wrote to `path`, the last of each setting."""
    found = {}
    for run in complete_lines(path):
        if run.get("program") in names and run["round"] is None and (
                (run["model"], run["device"], run["layout"]) == (job.model, job.device, job.layout.name)):
            found[run["program"], tables.name_setting(run["setting"])] = run
    missing = names - {program for program, _ in found}
    if missing:
        raise SystemExit(f"{path} holds no trials of {', '.join(sorted(missing))} on {job.model}, {job.device},"
                         f" {job.layout.name}: run once without --trials")
    return list(found.values())


def report_to(path):
    def report(run):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        rate = f"{run['tokens_per_second']:.0f} tokens/s" if "tokens_per_second" in run else run.get("error", "")
        if "program" in run:
            when = "trial" if run["round"] is None else f"round {run['round']}"
            print(f"  {run['layout']}, {when}: {run['program']} {tables.name_setting(run['setting'])}: {rate}",
                  flush=True)
    return report


def machine():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    has = [one for one in ("avx512f", "avx512_bf16", "amx_bf16") if one in flags]
    return f"{len(os.sched_getaffinity(0))} CPUs, {names[0]} ({', '.join(has) or 'no AVX-512'})"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--model", choices=sizes.MODELS, default="57m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--layout", choices=["padded", "packed", "fixed"], action="append", help="default: all of the size")
    parser.add_argument("--peer", choices=["peft", "trainer", "torchtune", "litgpt"], action="append", help="default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of a run; the first is not counted in its rate")
    parser.add_argument("--trials", type=pathlib.Path, help="take the trials from an earlier run's --json file")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, whose first try takes minutes")
    parser.add_argument("--limit", type=float, default=600,
                        help="seconds after which a run is given up, ten times as many with torch.compile, in trials also half more "
                             "than another setting took; a setting given up after these seconds in one layout isn't tried in the next")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("peers.jsonl"), help="appended to")
    args = parser.parse_args()
    if args.steps < TRIAL_STEPS or args.repeats < 1:
        parser.error(f"--steps: expected at least {TRIAL_STEPS}, --repeats: at least 1")
    if not args.program.is_file():
        parser.error(f"{args.program} is not a program: build lora_finetune_single_device first")
    args.program = args.program.resolve()
    return args


def entrants(job, args):
    names = {"peft": "PEFT, plain loop", "trainer": "Trainer + PEFT", "torchtune": "torchtune recipe",
             "litgpt": "litgpt finetune_lora"}
    wanted = {names[one] for one in args.peer or names} | {"Lorikeet"}
    return [program for program in programs(job, args.program) if program.name in wanted]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the program that runs is stopped, too
    args = parse()
    config, every = sizes.MODELS[args.model], sizes.layouts(args.model, args.device)
    layouts = [every[name] for name in args.layout or every if name in every]
    if not layouts:
        raise SystemExit(f"{args.model} on {args.device} has the layouts {', '.join(every)} alone")
    with tempfile.TemporaryDirectory(prefix="peers") as folder:
        jobs = [Job(pathlib.Path(folder), args.model, config, layout, args.device, args.steps, not args.no_compile)
                for layout in layouts]
        taking_part = [entrants(job, args) for job in jobs]
        needed = sorted({program.environment for each in taking_part for program in each} | {"peft"})
        for name in needed:
            if not (ENVIRONMENTS / name / "requirements.txt").is_file():
                raise SystemExit(f"{ENVIRONMENTS / name} is not set up: run benchmarks/peers/setup {' '.join(needed)}")
        make_checkpoints(jobs[0].work, config, args.device, "litgpt" in needed)
        print(f"{args.model}, {args.device}, {machine()}, {datetime.date.today()}, {args.repeats} rounds of"
              f" {args.steps} steps", flush=True)
        results, hopeless = [], set()
        for job, programs_of_job in zip(jobs, taking_part):
            facts = rows.write_rows(job.rows, job.layout, config["vocab_size"], job.steps)
            bench = Bench(job, facts, report_to(args.json), args.limit)
            if args.trials:
                bench.runs += earlier_trials(args.trials, job, {one.name for one in programs_of_job} - {"Lorikeet"})
            for program in [] if args.trials else programs_of_job:
                if program.name != "Lorikeet":
                    bench.trials(program, hopeless)
            for number in range(args.repeats):
                bench.round(number, programs_of_job)
            results.append(bench)
        for bench in results:
            print(f"\n## {args.model}, {bench.job.layout.name}: {bench.job.layout.step_tokens} real tokens a step of"
                  f" {bench.job.layout.step_rows} rows, best product rate {bench.ceiling() / 1e9:.0f} GFLOP/s\n")
            print(tables.table(bench.runs, bench.ceiling()))
            print(tables.verdict(bench.runs) or "", flush=True)
        if any(tables.problem(bench.runs) for bench in results):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
