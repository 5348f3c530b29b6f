"""`lorikeet doctor`, whose warnings (exit code 1) don't fail the part: what it says stands in the log."""

import subprocess
import sys

WARNINGS = 1

# Line by line, so that the log has what was said before the part's time is over.
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
counts = {"ok": 0, "warning": 0, "unfit": 0}
for line in process.stdout:
    print(line, end="", flush=True)
    for kind in counts:
        counts[kind] += f" {kind} " in line
code = process.wait()
if counts["ok"] == 0:  # a program that can't start ends with 1 too
    print(f"doctor gave no findings; exit code {code}")
    sys.exit(code or 1)
print(", ".join(f"{count} {kind}" for kind, count in counts.items() if kind != "ok"))
sys.exit(0 if code in (0, WARNINGS) else code)
