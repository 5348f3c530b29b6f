"""All LoRA configs of torchtune 0.6.1: the plain ones and QLoRA's convert, all others are refused by name."""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

CONFIGS = 87
PLAIN = 49


def download(folder):
    """torchtune's wheel, without what it depends on (that clashes with ours)."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check", "--retries", "1",
               "--timeout", "15", "--dest", folder, "torchtune==0.6.1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode != 0:
        print("SKIP: torchtune's wheel can't be downloaded here:", result.stderr.strip().splitlines()[-1:])
        sys.exit(77)
    return next(pathlib.Path(folder).glob("*.whl"))


def expected(path):
    name = path.stem
    for part, kind in (("vision", "vision models"), ("multi_dataset", "vision models"), ("dpo", "DPO"), ("KD", "KD"), ("qat", "QAT")):
        if part in str(path):
            return kind
    return "qlora" if "qlora" in name else "plain"


def main():
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(download(folder)) as wheel:
            names = [n for n in wheel.namelist() if n.endswith(".yaml") and "lora" in pathlib.Path(n).stem]
            wheel.extractall(folder, names)
        paths = [pathlib.Path(folder) / name for name in sorted(names)]
        output = subprocess.run([sys.argv[1], *map(str, paths)], capture_output=True, text=True, timeout=120, check=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    assert len(lines) == len(paths) == CONFIGS, (len(lines), len(paths))
    wrong = []
    kinds = [expected(path) for path in names_of(paths)]
    for path, kind, line in zip(paths, kinds, lines):
        if kind in ("plain", "qlora"):
            good = "invalid" not in line and "refused" not in line
        else:
            good = kind in line.get("refused", "")
        if not good:
            wrong.append(f"{path.parent.name}/{path.name} ({kind}): {line.get('refused') or line.get('invalid') or 'converted'}")
    assert not wrong, "\n".join(wrong)
    assert kinds.count("plain") == PLAIN, kinds.count("plain")
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))})


def names_of(paths):
    return [path.relative_to(path.parents[1]) for path in paths]


if __name__ == "__main__":
    main()
