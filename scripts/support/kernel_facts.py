"""What CUDA's compiler says of each kernel for sm_80 and sm_90, as Markdown; exits 1 where a kernel spills registers.

    .venv/bin/python scripts/support/kernel_facts.py [FILE.cu ...] > benchmarks/results/kernels.md

Without files: all of lib. No GPU is needed, but nvcc: the wheel's beside this Python, else the one on PATH. Registers,
shared memory and spills are what ptxas reports; accesses to memory are counted in the PTX, by their width in bytes;
occupancy is computed for the block size that __launch_bounds__ names, else for 256 threads.
"""

import argparse
import collections
import dataclasses
import datetime
import math
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
USUAL_THREADS = 256
# Bytes of shared memory of a multiprocessor; all else is the same on both (CUDA's programming guide, technical
# specifications per compute capability).
SHARED_BYTES = {"sm_80": 167936, "sm_90": 233472}
REGISTERS, WARPS, BLOCKS, WARP = 65536, 64, 32, 32
REGISTER_UNIT, SCHEDULERS, SHARED_UNIT, SHARED_RESERVED = 256, 4, 128, 1024

COMPILING = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
ENTRY = re.compile(r"\.entry\s+(\w+)")
ACCESS = re.compile(r"^\s*(?:@!?%p\d+\s+)?(ld|ldu|st)((?:\.\w+)+)\s", re.M)
COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global \[[^\]]+\], \[[^\]]+\], (\d+)")  # into shared memory, its bytes
ELSEWHERE = {"param", "local", "const", "shared"}  # state spaces other than global memory


class CompilerMissing(Exception):
    pass


@dataclasses.dataclass
class Kernel:
    file: str
    name: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spilled_bytes: int  # stores and loads
    threads: int
    loads: dict  # width in bytes: how many in the code
    stores: dict

    @property
    def occupancy(self):
        return occupancy(self.arch, self.registers, self.shared_bytes, self.threads)


def occupancy(arch, registers, shared_bytes, threads):
    """The share of a multiprocessor's warps that blocks of so many threads can fill."""
    up_to = lambda number, unit: math.ceil(number / unit) * unit  # noqa: E731
    warps = math.ceil(threads / WARP)
    of_warp = max(up_to(registers * WARP, REGISTER_UNIT), REGISTER_UNIT)
    by_registers = REGISTERS // SCHEDULERS // of_warp * SCHEDULERS // warps
    by_shared = SHARED_BYTES[arch] // up_to(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    return min(by_registers, by_shared, WARPS // warps, BLOCKS) * warps / WARPS


def find_nvcc():
    found = sorted(pathlib.Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/nvcc"))
    path = str(found[-1]) if found else shutil.which("nvcc")
    if path is None:
        raise CompilerMissing("no nvcc beside this Python's packages or on PATH")
    return path


def demangled(names):
    """{symbol: name without namespaces and arguments}."""
    said = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    short = {}
    for symbol, name in zip(names, said, strict=True):
        name = re.sub(r"\(([\w:]+)\)(\d)", r"\1 \2", name.replace("(anonymous namespace)::", ""))  # enumerators are casts
        name = name.split("(")[0].removeprefix("void ")
        short[symbol] = re.sub(r"\b\w+::", "", name).strip()
    return short


def widths(ptx):
    """({width: loads}, {width: stores}) of global memory in a kernel's PTX."""
    loads, stores = collections.Counter(), collections.Counter()
    for what, modifiers in ACCESS.findall(ptx):
        parts = modifiers.split(".")[1:]
        if ELSEWHERE & set(parts):
            continue
        bits = next((int(part[1:]) for part in reversed(parts) if re.fullmatch(r"[busf]\d+", part)), 0)
        vector = next((int(part[1:]) for part in parts if re.fullmatch(r"v[248]", part)), 1)
        (stores if what == "st" else loads)[bits * vector // 8] += 1
    for width in COPY.findall(ptx):
        loads[int(width)] += 1
    return dict(loads), dict(stores)


def kernels_of(file, arch, nvcc=None, options=()):
    """The kernels that a .cu file compiles to for an architecture."""
    file = pathlib.Path(file).resolve()
    with tempfile.TemporaryDirectory() as work:
        command = [nvcc or find_nvcc(), "-std=c++17", "-O3", f"-arch={arch}", f"-I{ROOT / 'lib'}", "-Xptxas", "-v",
                   "-cubin", "--keep", f"--keep-dir={work}", str(file), "-o", f"{work}/kernels.cubin", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{file.name} for {arch}: nvcc ended with exit code {done.returncode}:\n{done.stderr}")
        ptx = (pathlib.Path(work) / f"{file.stem}.ptx").read_text()
    code = dict(zip(ENTRY.findall(ptx), ENTRY.split(ptx)[2::2], strict=True))
    reports = COMPILING.split(done.stderr)
    names = demangled(reports[1::2]) if len(reports) > 1 else {}
    shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
    kernels = []
    for symbol, report in zip(reports[1::2], reports[2::2], strict=True):
        stack, stored, loaded = map(int, SPILLS.search(report).groups())
        registers, shared = USED.search(report).groups()
        bounds = re.search(r"\.maxntid\s+(\d+)", code[symbol].split("{")[0])
        loads, stores = widths(code[symbol])
        kernels.append(Kernel(str(shown), names[symbol], arch, int(registers), int(shared or 0), stack, stored + loaded,
                              int(bounds.group(1)) if bounds else USUAL_THREADS, loads, stores))
    return kernels


def spilling(kernels):
    """A sentence for each kernel whose registers don't suffice."""
    return [f"{k.file}: {k.name} for {k.arch} spills {k.spilled_bytes} bytes of registers to memory; it has {k.registers}"
            for k in kernels if k.spilled_bytes]


def in_words(counts):
    return ", ".join(f"{count} of {width}" for width, count in sorted(counts.items(), reverse=True)) or "none"


def table(kernels, compiler):
    lines = [
        "# What the compiler says of the kernels",
        "",
        f"`scripts/support/kernel_facts.py`, {compiler}, {datetime.date.today():%d %B %Y}. Loads and stores of global memory as its",
        "PTX has them, by bytes of a thread; occupancy at the threads of a block that the kernel is compiled for.",
        "",
        "| kernel | file | for | registers | shared bytes | spilled bytes | loads | stores | threads | occupancy |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for k in kernels:
        lines.append(f"| `{k.name}` | `{pathlib.Path(k.file).name}` | {k.arch} | {k.registers} | {k.shared_bytes} | "
                     f"{k.spilled_bytes} | {in_words(k.loads)} | {in_words(k.stores)} | {k.threads} | {k.occupancy:.0%} |")
    return "\n".join(lines) + "\n"


def project_files():
    return sorted((ROOT / "lib").rglob("*.cu"))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args(arguments)
    try:
        nvcc = find_nvcc()
    except CompilerMissing as missing:
        print(f"kernel_facts: {missing}", file=sys.stderr)
        return 3
    kernels = [k for file in args.files or project_files() for arch in SHARED_BYTES for k in kernels_of(file, arch, nvcc)]
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    print(table(kernels, "nvcc " + re.search(r"release ([\d.]+)", version).group(1)), end="")
    for sentence in spilling(kernels):
        print(sentence, file=sys.stderr)
    return 1 if spilling(kernels) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
