"""Rules about single files: paths, dtypes, length, scripts' help, and tests that mirror the tree."""

import os
import re
import subprocess
from pathlib import Path, PurePosixPath

from tree import Finding

MOST_LINES = 450
LINES_COUNT_FOR = {".cpp", ".h", ".cu", ".cuh", ".py", ".cmake", ".sh", ""}
# A path that holds on one machine only. Words before the slash make it part of a URL or of a relative path.
MACHINE_PATH = re.compile(r"(?<![\w.$}~/*-])/(?:home|root|work|Users|mnt|srv)/[\w.]")
# A floating-point dtype by name; integer and boolean ones are layout, not precision.
DTYPE = re.compile(
    r"\b(?:(?:at|torch|c10)::k(?:Float|Double|Half|BFloat16|Float\d\w*)\b"
    r"|(?:at::|torch::|c10::)?ScalarType::(?:Float|Double|Half|BFloat16)\w*"
    r"|k(?:Float|Double|Half|BFloat16|Float(?:16|32|64))\b"
    r"|DType::k(?:F\d\w*|BF16)\b)"
)
CMAKE_SOURCE = re.compile(r"[\w./${}-]+\.(?:cpp|cu)\b")
CMAKE_WORD = re.compile(r"\w+")
DTYPE_FOLDERS = ("lib/nn", "lib/peft", "lib/train", "lib/parallel", "models", "recipes")


def check_machine_paths(tree):
    """No path of one machine, in any text file."""
    return [
        Finding(name, number, f"a path of one machine: {match.group(0)}...")
        for name in tree.files
        for number, text in tree.lines(name)
        if (match := MACHINE_PATH.search(text))
    ]


def read_allowed_dtypes(path):
    """{(file, name): reason} of dtype_allowed.txt."""
    allowed = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{path}: expected 'file | name | reason', got '{line}'")
        allowed[fields[0], fields[1]] = fields[2]
    return allowed


def without_comment(text):
    return re.sub(r"//.*", "", text)


def check_dtypes(tree, allowed):
    """Only lib/precision chooses a dtype: the layers above it name none, allowed places apart."""
    findings, unused = [], dict(allowed)
    for name in tree.cpp(*DTYPE_FOLDERS):
        for number, text in tree.lines(name):
            for found in DTYPE.findall(without_comment(text)):
                if (name, found) in allowed:
                    unused.pop((name, found), None)
                else:
                    findings.append(
                        Finding(name, number, f"names the dtype {found}; take it from precision::Policy")
                    )
    for name, found in unused:
        findings.append(
            Finding("tests/meta/dtype_allowed.txt", 0, f"allows {found} in {name}, which has none")
        )
    return findings


def check_length(tree):
    """A file has one subject: at most 450 lines of source."""
    findings = []
    for name in tree.files:
        path = PurePosixPath(name)
        is_source = path.suffix in LINES_COUNT_FOR and (path.suffix or path.parts[0] in ("scripts", ".ci"))
        if is_source and len(tree.lines(name)) > MOST_LINES:
            findings.append(
                Finding(name, 0, f"has {len(tree.lines(name))} lines, over {MOST_LINES}: split it by subject")
            )
    return findings


def check_script_help(tree):
    """Every executable directly in scripts/ answers --help with its usage, at once and without doing anything."""
    findings = []
    for name in tree.files:
        path = PurePosixPath(name)
        if path.parts[:-1] != ("scripts",) or not os.access(tree.root / name, os.X_OK):
            continue
        result = subprocess.run(
            [str(tree.root / name), "--help"],
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if result.returncode != 0 or name not in result.stdout:
            findings.append(
                Finding(name, 0, f"--help exits {result.returncode} without showing how '{name}' is called")
            )
    return findings


def check_mirror(tree, layers, other_tests):
    """tests/ mirrors the layers: each with sources has its folder of tests, and each folder of tests has its layer or
    is one of `other_tests`. Every source and test is named in a CMakeLists.txt."""
    findings = []
    names = {PurePosixPath(layer.folder).name for layer in layers}
    tested = {
        PurePosixPath(name).parts[1]
        for name in tree.files
        if name.startswith("tests/") and name.count("/") > 1
    }
    for layer in layers:
        short = PurePosixPath(layer.folder).name
        sources = [name for name in tree.cpp(layer.folder) if name.endswith(".cpp")]
        if sources and short not in tested and short not in ("recipes", "apps"):
            findings.append(Finding(layer.folder, 0, f"has sources but there is no tests/{short}"))
    for folder in sorted(tested - names - set(other_tests)):
        findings.append(Finding(f"tests/{folder}", 0, "mirrors no layer of tests/meta/layers.txt"))
    built = built_sources(tree)
    for name in tree.cpp():
        if name.endswith((".cpp", ".cu")) and name not in built:
            findings.append(Finding(name, 0, "no CMakeLists.txt names it, so it is never built"))
    return findings + unnamed_scripts(tree)


def unnamed_scripts(tree):
    """Findings for the tests in Python whose name no CMakeLists.txt has, whole or, as lists of tests have it, without
    its ending."""
    words = set()
    for name in tree.files:
        if PurePosixPath(name).name == "CMakeLists.txt":
            words |= {word for _, text in tree.lines(name) for word in CMAKE_WORD.findall(text.split("#")[0])}
    findings = []
    for name in tree.files:
        stem = PurePosixPath(name).stem
        is_test = name.startswith("tests/") and name.endswith(("_test.py", "_parity.py"))
        if not is_test or not any("__main__" in text for _, text in tree.lines(name)):
            continue
        if stem not in words and stem.removesuffix("_test") not in words:
            findings.append(Finding(name, 0, "no CMakeLists.txt names it, so it is never run"))
    return findings


def built_sources(tree):
    """The files that some CMakeLists.txt names, by their path from its folder or from a CMake variable's."""
    built = set()
    for name in tree.files:
        if PurePosixPath(name).name != "CMakeLists.txt":
            continue
        folder = PurePosixPath(name).parent.as_posix()
        for _, text in tree.lines(name):
            for word in CMAKE_SOURCE.findall(text.split("#")[0]):
                written = word.replace("${CMAKE_CURRENT_SOURCE_DIR}", folder).replace(
                    "${CMAKE_SOURCE_DIR}", ""
                )
                from_root = word.startswith("${")
                built.add(os.path.normpath(written.lstrip("/") if from_root else f"{folder}/{written}"))
    return built
