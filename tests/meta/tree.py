"""The source tree as the checks see it: its files, and findings about them."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CPP_SUFFIXES = {".cpp", ".h", ".cu", ".cuh"}
SKIPPED_FOLDERS = {".git", ".venv", ".cache", "build", "runs", "__pycache__"}


@dataclass(frozen=True)
class Finding:
    path: str
    line: int  # 0 where the finding is about the whole file
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


class Tree:
    """Files below `root`, named by their path relative to it with forward slashes."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.files = sorted(self._listed() or self._walked())

    def _listed(self):
        """What git tracks or would track; empty where this is not a git checkout's root."""
        if not (self.root / ".git").exists():
            return []
        command = [
            "git",
            "-C",
            str(self.root),
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        names = [name for name in result.stdout.split("\0") if name]
        return [name for name in names if (self.root / name).is_file()]

    def _walked(self):
        names = []
        for path in self.root.rglob("*"):
            relative = path.relative_to(self.root)
            if path.is_file() and not SKIPPED_FOLDERS.intersection(relative.parts):
                names.append(relative.as_posix())
        return names

    def cpp(self, *folders):
        """C++ and CUDA files, of these folders or of all."""
        return [
            name
            for name in self.files
            if Path(name).suffix in CPP_SUFFIXES
            and (not folders or name.startswith(tuple(f + "/" for f in folders)))
        ]

    def lines(self, name):
        """(number, text) of each line; nothing for a file that isn't text."""
        try:
            text = (self.root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return []
        return list(enumerate(text.splitlines(), start=1))

    def has(self, name):
        return (self.root / name).is_file()
