"""Rules about CUDA code that a search of the text can hold: launches and their guards, and waits for the device."""

import re
from collections import Counter
from pathlib import Path

from tree import Finding

FOLDERS = ("lib", "models", "recipes", "apps")
# Probes measure: they wait for what they time.
UNHELD_FOLDERS = ("lib/probe/",)

LAUNCH = re.compile(r"<<<(.*?)>>>", re.S)
LAUNCH_CHECK = re.compile(r"\bcudaGetLastError\b|\bC10_CUDA_KERNEL_LAUNCH_CHECK\b")
NO_STREAM = ("0", "nullptr", "{}")
# A stream as kernels are launched on it, and the guard that makes its device the current one.
TAKEN_STREAM = re.compile(r"\.native_handle\(|\bgetCurrentCUDAStream\(")
GUARD = re.compile(r"\b(?:c10::|at::cuda::)?(?:Optional)?(?:CUDA|Device)\w*Guard\s+\w+\s*[({]")
FUNCTION_END = re.compile(r"^}", re.M)

BLOCKING_CALL = re.compile(
    r"\bcuda(?:Malloc|Free|DeviceSynchronize|StreamSynchronize|EventSynchronize|Memcpy|Memset|MallocHost|HostAlloc)\s*\("
)
WAIT = re.compile(
    r"\.item\s*(?:<[^>]*>)?\s*\(|\.cpu\(\)|\.nonzero\(\)|\.masked_select\(|\.to\((?:at|torch)::kCPU"
    r"|\bat::(?:nonzero|equal|unique\w*|masked_select)\(|(?:\.|->)synchronize\("
)


def read_allowed_waits(path):
    """{(file, call): (count, reason)} of cuda_waits.txt."""
    allowed = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not all(fields) or not fields[2].isdigit():
            raise ValueError(f"{path}: expected 'file | call | count | reason', got '{line}'")
        allowed[fields[0], fields[1]] = int(fields[2]), fields[3]
    return allowed


def held_files(tree):
    return [name for name in tree.cpp(*FOLDERS) if not name.startswith(UNHELD_FOLDERS)]


def code_of(tree, name):
    """A file's text without its line comments; lines stay where they are."""
    return "\n".join(re.sub(r"//.*", "", text) for _, text in tree.lines(name))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def split_arguments(text):
    """The arguments of a call or launch, split at the commas outside of all brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def check_launches(tree):
    """Every launch names its stream and has its error asked for; whoever takes a stream for one sets its device."""
    findings = []
    for name in held_files(tree):
        text = code_of(tree, name)
        for match in LAUNCH.finditer(text):
            line = line_of(text, match.start())
            parts = split_arguments(match.group(1))
            if len(parts) < 4 or parts[3] in NO_STREAM:
                findings.append(Finding(name, line, "a launch on the default stream; name the current one"))
            if not LAUNCH_CHECK.search(text, match.end()):
                findings.append(Finding(name, line, "a launch without cudaGetLastError after it"))
        for match in TAKEN_STREAM.finditer(text):
            ends = [end.end() for end in FUNCTION_END.finditer(text, 0, match.start())]
            if not GUARD.search(text, ends[-1] if ends else 0, match.start()):
                findings.append(
                    Finding(name, line_of(text, match.start()),
                            "a stream is taken for a launch without a device guard before it")
                )
    return findings


def check_waits(tree, allowed):
    """The host waits for a device only where cuda_waits.txt says why, and calls no blocking function of CUDA."""
    findings = []
    found = {}
    for name in held_files(tree):
        text = code_of(tree, name)
        for match in BLOCKING_CALL.finditer(text):
            findings.append(
                Finding(name, line_of(text, match.start()),
                        f"{match.group(0)}...) blocks, or allocates beside libtorch's allocator")
            )
        for match in WAIT.finditer(text):
            found.setdefault((name, match.group(0)), []).append(line_of(text, match.start()))
    counts = Counter({place: len(lines) for place, lines in found.items()})
    for (name, call), lines in found.items():
        count, _ = allowed.get((name, call), (0, ""))
        if len(lines) > count:
            findings.append(
                Finding(name, lines[-1], f"{call} waits for a GPU: {len(lines)} in this file, cuda_waits.txt allows {count}")
            )
    for (name, call), (count, _) in allowed.items():
        if counts[name, call] < count:
            findings.append(
                Finding("tests/meta/cuda_waits.txt", 0,
                        f"allows {count} of {call} in {name}, which has {counts[name, call]}")
            )
    return findings
