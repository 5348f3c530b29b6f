"""`lorikeet doctor`, whose warnings (exit code 1) don't fail the part: what it says stands in the log."""

import subprocess
import sys

import common

WARNINGS = 1
PROBE_SECONDS = 40  # the first one loads CUDA's libraries, from a disk that nobody has read yet


def part(run):
    process = subprocess.Popen(run.command("lorikeet", "doctor", "--time-limit", PROBE_SECONDS, f"device={run.device}",
                                           *run.half_precision()), stdout=subprocess.PIPE, text=True)
    counts = {"ok": 0, "warning": 0, "unfit": 0}
    # Line by line, so that the log has what was said before the part's time is over.
    for line in process.stdout:
        print(line, end="", flush=True)
        for kind in counts:
            counts[kind] += f" {kind} " in line
    code = process.wait()
    if counts["ok"] == 0:  # a program that can't start ends with 1 too
        print(f"doctor gave no findings; exit code {code}")
        sys.exit(code or 1)
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind != "ok")
    if code not in (0, WARNINGS):
        print(words)
        sys.exit(code)
    return words


common.main(part)
