"""What the recipe tests share: running the programs, reading what they wrote."""

import json
import os
import pathlib
import pty
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "quickstart"
# Other work on the machine must not slow OpenMP's barriers down; two threads give the same bits every time.
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "1000", "OMP_NUM_THREADS": "2"}


class Programs:
    """The executables under test, with a folder of their own for runs and caches."""

    def __init__(self, folder, micro_tokens="auto"):
        self.folder = pathlib.Path(folder)
        self.temporary = tempfile.TemporaryDirectory(prefix="lorikeet-recipes-")
        self.work = pathlib.Path(self.temporary.name)
        (self.work / "config.yaml").write_text(
            f"model: {{ path: {EXAMPLE / 'base'} }}\n"
            f"data: {{ train: {{ path: {EXAMPLE / 'train.jsonl'}, format: alpaca }}, max_seq_len: 256,"
            f" cache_dir: {self.work / 'cache'} }}\n"
            f"batch: {{ global: 8, micro_tokens: {micro_tokens} }}\noptimizer: {{ lr: 2e-3 }}\ndevice: cpu\n"
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

    def train(self, output, *overrides, timeout=120, **options):
        return run(self.command(output, *overrides), timeout, **options)

    def verb(self, *arguments, stdin="", timeout=120):
        return run([str(self.folder / "lorikeet"), *map(str, arguments)], timeout, stdin)

    def start(self, output, *overrides):
        return subprocess.Popen(
            self.command(output, *overrides), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def run(command, timeout, stdin="", largest_file=None):
    """`largest_file`: writing a file beyond so many bytes fails, as on a full disk."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.run(
        command, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, timeout=timeout, check=False,
        preexec_fn=limit if largest_file else None,
    )


def on_terminal(command, timeout=120):
    """Exit code and what a person would see, stdout and stderr being a terminal."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:  # a bare root without /dev/pts
        raise unittest.SkipTest(f"no terminal can be had here: {error}") from error
    process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return process.wait(timeout=timeout), seen.decode()


def tree(folder):
    """{path: bytes} of all files below, {} when it doesn't exist."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    """What read_tensors reads."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def matrix(rows, columns, value):
    """Rows of numbers; value(row, column)."""
    return [[float(value(i, j)) for j in range(columns)] for i in range(rows)]


def write_adapter(folder, modules, alpha=4.0, others=None, **config):
    """A PEFT adapter in fp32 of {module: (A, B)}, with `others` {name: matrix}; `config` goes to adapter_config.json."""
    folder.mkdir()
    tensors = {f"{module}.lora_{part}.weight": factor for module, factors in modules.items() for part, factor in zip("AB", factors)}
    write_tensors(folder / "adapter_model.safetensors", {
        f"base_model.model.{name}": ("F32", [len(rows), len(rows[0])], b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))
        for name, rows in (tensors | (others or {})).items()})
    rank = len(next(iter(modules.values()))[0])
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": sorted(modules),
        "base_model_name_or_path": "base", **config}))
    return folder


def metrics(output):
    """The lines of metrics.jsonl without what a clock or the allocator decides."""
    measured = ("seconds", "per_second", "tflops", "mfu", "memory")
    lines = (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not any(m in k for m in measured)} for line in lines]


def wait_for(condition, seconds=60, interval=0.01):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(interval)
    return False


def stop(process, how=signal.SIGKILL):
    process.send_signal(how)
    return process.wait(timeout=60)
