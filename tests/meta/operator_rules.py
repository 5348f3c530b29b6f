"""Every operator of lib/ops has a case in `lorikeet doctor --gpu-tests` (lib/probe/operators).

That each of its kernels is launched there tests/card/gpu_tests_test.py finds on the made-up card.
"""

import re
from pathlib import PurePosixPath

from tree import Finding

OPERATORS, CASES = "lib/ops", "lib/probe/operators"
INCLUDED = re.compile(r'#include "ops/(\w+)/')
WITHOUT_CASES = {}  # folder of lib/ops: why no case is there; none at present


def check_cases(tree, without_cases=None):
    """A folder of lib/ops is an operator, and a file of cases includes a header of it, or the folder is excepted."""
    excepted = WITHOUT_CASES if without_cases is None else without_cases
    operators = {PurePosixPath(name).parts[2] for name in tree.cpp(OPERATORS) if name.count("/") > 2}
    tested = {
        operator
        for name in tree.cpp(CASES)
        if name.endswith("_cases.cpp")
        for _, text in tree.lines(name)
        for operator in INCLUDED.findall(text)
    }
    findings = [
        Finding(f"{OPERATORS}/{operator}", 0, f"has no case of --gpu-tests: add one to {CASES}, or say in "
                "tests/meta/operator_rules.py why there is none")
        for operator in sorted(operators - tested - set(excepted))
    ]
    findings += [
        Finding("tests/meta/operator_rules.py", 0, f"excepts {operator}, which has a case or isn't there")
        for operator in sorted(set(excepted) - (operators - tested))
    ]
    return findings
