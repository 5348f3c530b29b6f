"""Turns a .cu file into C++ for host_kernel.h; lines stay where they were.

usage: cuda_to_cpp.py SOURCE.cu OUTPUT.cpp
"""

import pathlib
import re
import sys

LAUNCH = re.compile(r"([\w:]+(?:<[^<>;]*>)?)\s*<<<(.*?)>>>\s*\(", re.S)
# A block's variable: one object, or an array of a size that the compiler knows.
SHARED = re.compile(r"__shared__\s+([\w:]+(?:<[^;<>]*>)?)\s+(\w+)((?:\[[^\]]+\])*)\s*;")
# Threads that share memory, wait for each other or, by functions of headers, multiply together can't run one after the
# other.
COOPERATION = re.compile(
    r"__shared__|__syncthreads\b|__syncwarp\b|__shfl_(?:xor_|down_)?sync\b|cuda_(?:tensor_core|low_rank)"
)
# What tests/card/block_threads.h has no counterpart of.
UNSUPPORTED = re.compile(
    r"extern\s+__shared__|__shared__|__sync(?!threads\b|warp\b)\w+|__shfl_(?!sync\b|xor_sync\b|down_sync\b)\w+"
    r"|__ballot\w*|__any_sync|__all_sync|__activemask|\batomic\w+\s*\(|cooperative_groups|\basm\b"
)


class Unsupported(Exception):
    pass


def convert(text, name):
    """The C++ of a .cu file's text. Raises Unsupported for what tests/card/block_threads.h can't run."""
    body, shared = SHARED.subn(r"auto& \2 = lorikeet::card::shared_variable<\1\3>([] {});", text)
    together = shared > 0 or COOPERATION.search(text)
    found = UNSUPPORTED.search(body)
    if found:
        line = body.count("\n", 0, found.start()) + 1
        raise Unsupported(
            f"{name}:{line}: {found.group(0)}: expected shared variables of a known size, barriers and shuffles; "
            "tests/card/block_threads.h runs no other cooperation of threads"
        )
    threads = "lorikeet::card::Threads::" + ("kTogether" if together else "kAlone")
    body, launches = LAUNCH.subn(rf'lorikeet::card::launcher<{threads}>("{name}", \1, \2)(', body)
    if not launches:
        raise Unsupported(f"{name}: expected a launch of a kernel, found none")
    return f'#include "card/host_kernel.h"\n#line 1 "{name}"\n{body}'


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    source, output = map(pathlib.Path, arguments)
    try:
        output.write_text(convert(source.read_text(encoding="utf-8"), source.name), encoding="utf-8")
    except Unsupported as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
