"""Runs one program and measures it from outside."""

import os
import pathlib
import signal
import statistics
import subprocess
import time


GIVEN_UP = "given up after"  # how such a failure begins


class Failed(Exception):
    """A run that ended, or was given up, before its last step."""


def peak_bytes(process):
    """VmHWM of a process: the most memory that it has had at one time; 0 when it has ended."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


class GpuMemory:
    """The most bytes in use on the first GPU since the start, less what was in use then, by nvidia-smi twice a second."""

    def __init__(self):
        self.before, self.most, self.next = self.used(), 0, 0

    def used(self):
        said = subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              check=True, capture_output=True, text=True)
        return int(said.stdout.split()[0]) << 20

    def look(self):
        if time.perf_counter() >= self.next:
            self.most = max(self.most, self.used() - self.before)
            self.next = time.perf_counter() + 0.5


def last_lines(path):
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-2:])[-400:] or "it said nothing"


def stop(process):
    """Ends a process and what it started (torch.compile has helpers): it is the leader of its own session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def measure(command, environment, out, read_steps, steps, limit, on_gpu=False):
    """Runs `command` until read_steps() returns `steps` steps, or `limit` seconds. Returns first_step_seconds (from the
    start to when the first step was recorded), step_seconds (median of the later ones), seconds (of all), peak_bytes (of the
    GPU if on_gpu), first_loss and last_loss. Throws Failed."""
    log, peak, first, gpu = out / "log.txt", 0, None, GpuMemory() if on_gpu else None
    with log.open("wb") as said:
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=environment, cwd=out, stdout=said, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while True:
                ended = process.poll() is not None
                peak = max(peak, peak_bytes(process))
                if gpu:
                    gpu.look()
                done = read_steps()
                now = time.perf_counter() - begin
                first = first or (now if done else None)
                if len(done) >= steps:
                    break
                if ended:
                    raise Failed(f"exit code {process.returncode} after {len(done)} steps: {last_lines(log)}")
                if now > limit:
                    raise Failed(f"{GIVEN_UP} {limit:.0f} s and {len(done)} steps: {last_lines(log)}")
                time.sleep(0.02)
        finally:
            stop(process)
    return {"first_step_seconds": first, "step_seconds": statistics.median(step["seconds"] for step in done[1:steps]),
            "seconds": now, "peak_bytes": gpu.most if gpu else peak, "first_loss": done[0]["loss"], "last_loss": done[steps - 1]["loss"]}
