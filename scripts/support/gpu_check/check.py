"""Runs the parts of scripts/gpu-check, each in a process of its own with a time limit, and writes summary.md."""

import argparse
import dataclasses
import datetime
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SKIPPED = 77  # a part's exit code
USUAL_MINUTES = 8


@dataclasses.dataclass
class Part:
    name: str
    command: list
    limit_seconds: float


@dataclasses.dataclass
class Outcome:
    part: Part
    result: str  # pass, FAIL, skipped
    words: str  # see last_words
    seconds: float
    log: pathlib.Path


def last_words(log):
    """The last line that a part wrote, behind the first one that names a fault: "FAIL: ..." of the operators' tests, a
    doctor's "unfit"."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines[:-1] if line.startswith("FAIL:") or " unfit " in line]
    return "; ".join([*causes[:1], *lines[-1:]])


def run_part(part, output, limit_seconds, environment=None):
    """Runs a part to its end or its limit, with its output in a log; what it has started ends with it."""
    log = output / f"{part.name}.log"
    begin = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(list(map(str, part.command)), stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
                                   stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        try:
            code = process.wait(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the part, or what it left behind
        except ProcessLookupError:
            pass
        process.wait()
    seconds = time.monotonic() - begin
    if code is None:
        return Outcome(part, "FAIL", f"not done within {limit_seconds:.0f} s; {last_words(log)}", seconds, log)
    result = {0: "pass", SKIPPED: "skipped"}.get(code, "FAIL")
    how = f"exit code {code}: " if result == "FAIL" else ""
    return Outcome(part, result, how + last_words(log), seconds, log)


def run_parts(parts, output, minutes, environment=None):
    """All of them in order; what has no time left is skipped. With more than the usual minutes each has more too."""
    deadline = time.monotonic() + 60 * minutes
    patience = max(1.0, minutes / USUAL_MINUTES)
    outcomes = []
    for part in parts:
        left = deadline - time.monotonic()
        if left <= 0:
            (output / f"{part.name}.log").write_text("")
            outcomes.append(Outcome(part, "skipped", f"no time was left of {minutes:g} minutes", 0, output / f"{part.name}.log"))
        else:
            outcomes.append(run_part(part, output, min(patience * part.limit_seconds, left), environment))
        done = outcomes[-1]
        print(f"{part.name}: {done.result} ({done.seconds:.0f} s) {done.words}", flush=True)
    return outcomes


def summary(outcomes, facts):
    lines = ["# gpu-check", "", *(f"- {name}: {value}" for name, value in facts.items()), "",
             "| part | result | seconds | last words | log |", "|---|---|---|---|---|"]
    for o in outcomes:
        words = o.words.replace("|", "\\|")[:300]
        lines.append(f"| {o.part.name} | {o.result} | {o.seconds:.0f} | {words} | [{o.log.name}]({o.log.name}) |")
    counts = {result: sum(o.result == result for o in outcomes) for result in ("pass", "FAIL", "skipped")}
    lines += ["", f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['skipped']} were skipped."]
    return "\n".join(lines) + "\n"


def program_command(programs, name):
    """How a program of a folder of executables, or of a packed build, is started."""
    return [str(programs / "run"), name] if (programs / "run").is_file() else [str(programs / name)]


def all_parts(programs, output, device):
    lorikeet = program_command(programs, "lorikeet")
    script = lambda name: [sys.executable, HERE / f"{name}.py", programs, output / name, device]  # noqa: E731
    return [
        Part("doctor", script("doctor"), 120),
        # One that hangs leaves time for the others.
        Part("gpu-tests", [*lorikeet, "doctor", "--gpu-tests", "--time-limit", "15", f"device={device}"], 120),
        Part("parity", script("parity"), 240),
        Part("resume", script("resume"), 120),
        Part("saving", script("saving"), 150),
        Part("graphs", script("graphs"), 150),
        Part("two-ranks", script("two_ranks"), 90),
        Part("plan", script("plan"), 90),
        Part("quickstart", script("quickstart"), 120),
        Part("peers", script("peers"), 300),
    ]


def default_programs():
    for preset in ("cuda", "release"):
        if (ROOT / "build" / preset / "apps" / "lorikeet").is_file():
            return ROOT / "build" / preset / "apps"
    return None


def card_of(device):
    said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                          text=True, check=False) if pathlib.Path("/usr/bin/nvidia-smi").exists() else None
    return f"{device}; {'; '.join(said.stdout.split(chr(10))).strip('; ')}" if said and said.stdout else device


def why_absent(programs, device, environment):
    """What `lorikeet doctor` says of a device that isn't there, for which no part could run; else nothing."""
    said = subprocess.run([*program_command(programs, "lorikeet"), "doctor", "--quick", f"device={device}"],
                          env=environment, capture_output=True, text=True, check=False).stdout
    lines = [line for line in said.splitlines() if line.startswith(("device ", "GPUs ", "CUDA "))]
    return "\n".join(lines) if any("isn't there" in line for line in lines) else ""


def main(arguments):
    parser = argparse.ArgumentParser(prog="scripts/gpu-check")
    parser.add_argument("--programs", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", help="parts, by comma")
    parser.add_argument("--minutes", type=float, default=USUAL_MINUTES)
    args = parser.parse_args(arguments)
    programs = args.programs or default_programs()
    if programs is None or not pathlib.Path(program_command(programs, "lorikeet")[0]).is_file():
        print(f"gpu-check: no built programs in {programs or 'build/cuda/apps or build/release/apps'}; build them, or name "
              "their folder by --programs", file=sys.stderr)
        return 3
    stamp = datetime.datetime.now()
    output = (args.output or ROOT / "runs" / f"gpu-check-{stamp:%Y%m%d-%H%M%S}").resolve()
    if output.exists() and any(output.iterdir()):
        print(f"gpu-check: '{output}' isn't empty; name another folder by --output", file=sys.stderr)
        return 2
    output.mkdir(parents=True, exist_ok=True)
    parts = all_parts(programs.resolve(), output, args.device)
    if args.only:
        chosen = args.only.split(",")
        unknown = set(chosen) - {part.name for part in parts}
        if unknown:
            print(f"gpu-check: no part is called {', '.join(sorted(unknown))}; there are "
                  f"{', '.join(part.name for part in parts)}", file=sys.stderr)
            return 2
        parts = [part for part in parts if part.name in chosen]
    # A packed build's `run` asks the first python3 on PATH where torch is: the one that runs this.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {"PATH": path}
    if absent := why_absent(programs.resolve(), args.device, environment):
        print(f"gpu-check: {absent}", file=sys.stderr)
        return 3
    outcomes = run_parts(parts, output, args.minutes, environment)
    facts = {"begun": f"{stamp:%Y-%m-%d %H:%M}", "device": card_of(args.device), "machine": platform.platform(),
             "programs": programs}
    (output / "summary.md").write_text(summary(outcomes, facts))
    print(f"summary: {output / 'summary.md'}")
    return 1 if any(o.result == "FAIL" for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
