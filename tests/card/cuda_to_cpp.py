"""Turns a .cu file into C++ for host_kernel.h; lines stay where they were.

usage: cuda_to_cpp.py SOURCE.cu OUTPUT.cpp
"""

import pathlib
import re
import sys

LAUNCH = re.compile(r"([\w:]+(?:<[^<>;]*>)?)\s*<<<(.*?)>>>\s*\(", re.S)
# Threads that share memory or wait for each other can't run one after the other.
COOPERATION = re.compile(r"__shared__|__sync\w+|__shfl\w*|__ballot\w*|\batomic\w+\s*\(|cooperative_groups|\basm\b")


class Unsupported(Exception):
    pass


def convert(text, name):
    """The C++ of a .cu file's text. Raises Unsupported where its threads work together."""
    found = COOPERATION.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise Unsupported(
            f"{name}:{line}: {found.group(0)}: expected a kernel whose threads share nothing; tests/card/host_kernel.h "
            "runs them one after the other"
        )
    body, launches = LAUNCH.subn(rf'lorikeet::card::launcher("{name}", \1, \2)(', text)
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
