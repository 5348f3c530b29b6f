#!/usr/bin/env python3
"""Checks the source tree against the project's rules and prints what breaks them.

usage: check_tree.py [ROOT]

The rules: layers.py and layers.txt (who may include whom), cuda_rules.py and cuda_waits.txt (launches of kernels, waits
for a GPU), operator_rules.py (operators' cases of --gpu-tests), rules.py (the rest). Exit code 1 when something is found.
"""

import sys
from pathlib import Path

import cuda_rules
import layers
import operator_rules
import rules
from tree import Tree

HERE = Path(__file__).resolve().parent
WAITS = "tests/meta/cuda_waits.txt"
DTYPES = "tests/meta/dtype_allowed.txt"
# Folders of tests beside those that mirror a layer.
OTHER_TESTS = ("support", "meta", "parity", "fuzz", "toy", "card")


def check(root):
    tree = Tree(root)
    order = layers.read_layers(HERE / "layers.txt")
    dtypes = rules.read_allowed_dtypes(tree.root / DTYPES) if tree.has(DTYPES) else {}
    waits = cuda_rules.read_allowed_waits(tree.root / WAITS) if tree.has(WAITS) else {}
    return [
        *layers.check_layers(tree, order),
        *rules.check_machine_paths(tree),
        *rules.check_dtypes(tree, dtypes),
        *cuda_rules.check_launches(tree),
        *cuda_rules.check_waits(tree, waits),
        *operator_rules.check_cases(tree),
        *rules.check_length(tree),
        *rules.check_script_help(tree),
        *rules.check_mirror(tree, order, OTHER_TESTS),
    ]


def main(arguments):
    if len(arguments) > 1 or "--help" in arguments:
        print(__doc__.strip())
        return 0 if "--help" in arguments else 2
    findings = check(arguments[0] if arguments else HERE.parents[1])
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings" if findings else "the tree keeps its rules")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
