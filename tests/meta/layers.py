"""Holds every #include to the order of the layers (layers.txt)."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tree import Finding

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Folders of tests that belong to no layer may use all of them; so may the benchmarks.
OUTSIDE = ("tests", "benchmarks")


@dataclass(frozen=True)
class Layer:
    folder: str
    rank: int
    plain: bool


def read_layers(path):
    """The layers of a file such as layers.txt, lowest first."""
    layers = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        fields = line.split("#")[0].split()
        if not fields:
            continue
        if len(fields) != 2 or fields[1] not in ("plain", "torch"):
            raise ValueError(f"{path}: expected 'folder plain|torch', got '{line}'")
        layers.append(Layer(fields[0], len(layers), fields[1] == "plain"))
    return layers


def layer_of(name, layers):
    """The layer that holds a file, or None."""
    for layer in layers:
        if name.startswith(layer.folder + "/"):
            return layer
    return None


def tested_layer(name, layers):
    """The layer whose unit tests hold a file: tests/io/x_test.cpp is io's. None for other files."""
    parts = PurePosixPath(name).parts
    if parts[0] != "tests" or len(parts) < 3:
        return None
    return next((layer for layer in layers if PurePosixPath(layer.folder).name == parts[1]), None)


def resolve(tree, name, header):
    """The tree's file that `#include "header"` in file `name` means, or None."""
    here = PurePosixPath(name).parent
    for base in (here, PurePosixPath("lib"), PurePosixPath("."), PurePosixPath("tests")):
        candidate = (base / header).as_posix()
        if ".." not in PurePosixPath(candidate).parts and tree.has(candidate):
            return candidate
    return None


def check_layers(tree, layers):
    """Findings about includes: upward, out of a plain layer into one with libtorch, unresolved, or in the wrong
    brackets; about libtorch's headers where they may not be; and about folders that no layer is named for."""
    findings = []
    for name in tree.cpp():
        own = layer_of(name, layers)
        if own is None and not name.startswith(tuple(folder + "/" for folder in OUTSIDE)):
            findings.append(Finding(name, 0, "belongs to no layer of tests/meta/layers.txt"))
            continue
        judged = own or tested_layer(name, layers)
        for number, text in tree.lines(name):
            match = INCLUDE.match(text)
            if match:
                findings += [
                    Finding(name, number, what)
                    for what in judge(tree, layers, name, own, judged, *match.groups())
                ]
    return findings


def judge(tree, layers, name, own, judged, bracket, header):
    """What is wrong with one include of file `name`. `own` is the layer that holds the file, `judged` the one that it
    is held to (its own, or the one that it tests)."""
    if TORCH_HEADER.match(header):
        if name.endswith((".cu", ".cuh")):
            yield f"CUDA code includes libtorch's {header}"
        elif own and own.plain and name.endswith(".h"):
            yield f"a header of the plain layer {own.folder} includes libtorch's {header}"
        return
    target = resolve(tree, name, header)
    if bracket == "<":
        # Only what can't be a system header: those have no path of ours.
        if target and layer_of(target, layers) and "/" in header:
            yield f'<{header}> is a file of ours: use "{header}"'
        return
    if target is None:
        yield f'"{header}" is no file of ours: use <{header}> for another library\'s'
        return
    layer = layer_of(target, layers)
    if own and target.startswith(OUTSIDE):
        yield f"{own.folder} includes {target}"
    if judged is None or layer is None:
        return
    if layer.rank > judged.rank:
        yield f"{judged.folder} includes {target} of the higher layer {layer.folder}"
    elif judged.plain and not layer.plain:
        yield f"the plain layer {judged.folder} includes {target} of {layer.folder}, which uses libtorch"
