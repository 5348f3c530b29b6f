#!/usr/bin/env python3
"""Installs a build, moves the tree and starts each program from there.

usage: install_test.py CMAKE BUILD_FOLDER LIBTORCH APP...
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def start(program, *arguments, **environment):
    clean = {
        key: value for key, value in os.environ.items() if key not in ("LORIKEET_LIBTORCH", "LD_LIBRARY_PATH")
    }
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        env={**clean, **environment},
        timeout=120,
        check=False,
    )


def expect(condition, what, result):
    if not condition:
        sys.exit(f"{what}\nexit code {result.returncode}\n{result.stdout}\n{result.stderr}")


def main(cmake, build, libtorch, *apps):
    with tempfile.TemporaryDirectory() as folder:
        first, moved = Path(folder) / "first", Path(folder) / "moved there"
        installed = start(cmake, "--install", build, "--prefix", str(first))
        expect(installed.returncode == 0, "the install failed", installed)
        first.rename(moved)
        # What stays must not be where it was built: that machine's libtorch is as good as gone.
        (moved / "libexec/lorikeet/libtorch-folder").unlink()
        for app in apps:
            dynamic = start("readelf", "-d", str(moved / "libexec/lorikeet" / app))
            pathless = "RUNPATH" not in dynamic.stdout and "RPATH" not in dynamic.stdout
            expect(
                dynamic.returncode == 0 and pathless,
                f"{app} should hold no path to the build's libraries",
                dynamic,
            )
            program = moved / "bin" / app
            lost = start(program, "--help")
            expect(
                lost.returncode == 3 and "found no libtorch" in lost.stderr,
                f"{app} without libtorch should exit 3",
                lost,
            )
            for option in ("--help", "--version"):
                named = start(program, option, LORIKEET_LIBTORCH=libtorch)
                expect(named.returncode == 0 and named.stdout, f"{app} {option} by LORIKEET_LIBTORCH", named)
            print(f"{app}: ok by LORIKEET_LIBTORCH")
        (moved / "lib").mkdir(exist_ok=True)
        (moved / "lib/libtorch").symlink_to(libtorch)
        for app in apps:
            beside = start(moved / "bin" / app, "--help")
            expect(
                beside.returncode == 0 and app in beside.stdout,
                f"{app} --help with lib/libtorch beside it",
                beside,
            )
            print(f"{app}: ok with libtorch beside it")


if __name__ == "__main__":
    main(*sys.argv[1:])
