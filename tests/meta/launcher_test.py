"""The installed programs' launcher, over a tree and libtorch folders made of empty files.

usage: launcher_test.py LAUNCHER VERSION
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LAUNCHER, VERSION = sys.argv.pop(1), sys.argv.pop(1)
# Stands for the program: prints what it was started with.
PROGRAM = '#!/bin/sh\necho "$LD_LIBRARY_PATH"\necho "$*"\nexit 7\n'


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.prefix = self.root / "a prefix"
        self.executable(self.prefix / "libexec/lorikeet/lorikeet", PROGRAM)
        self.executable(self.prefix / "bin/lorikeet", Path(LAUNCHER).read_text(encoding="utf-8"))

    def executable(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def libtorch(self, folder, version=VERSION):
        """What of a wheel's torch folder the launcher looks at."""
        (folder / "lib").mkdir(parents=True)
        (folder / "lib/libtorch_cpu.so").touch()
        (folder / "version.py").write_text(f"__version__ = '{version}+cu130'\n", encoding="utf-8")
        return folder

    def built_with(self, folder):
        (self.prefix / "libexec/lorikeet/libtorch-folder").write_text(f"{folder}\n", encoding="utf-8")

    def start(self, *arguments, program=None, **environment):
        clean = {
            key: value
            for key, value in os.environ.items()
            if key not in ("LORIKEET_LIBTORCH", "LD_LIBRARY_PATH")
        }
        command = [str(program or self.prefix / "bin/lorikeet"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env={**clean, **environment}, check=False
        )

    def assert_uses(self, result, *folders):
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.stdout.splitlines()[0].split(":"), [str(folder) for folder in folders])

    def assert_refuses(self, result, *parts):
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in ("lorikeet: ", *parts):
            self.assertIn(part, result.stderr)

    def test_the_program_gets_its_arguments_and_gives_its_exit_code(self):
        self.libtorch(self.prefix / "lib/libtorch")
        result = self.start("generate", "two words", "--x=1")
        self.assertEqual((result.returncode, result.stdout.splitlines()[1]), (7, "generate two words --x=1"))

    def test_libtorch_is_found_beside_it(self):
        torch = self.libtorch(self.prefix / "lib/libtorch")
        self.assert_uses(self.start(), torch / "lib")

    def test_the_tree_may_be_moved(self):
        self.libtorch(self.prefix / "lib/libtorch")
        moved = self.root / "elsewhere"
        shutil.move(self.prefix, moved)
        self.assert_uses(self.start(program=moved / "bin/lorikeet"), moved / "lib/libtorch/lib")

    def test_it_may_be_started_by_a_link_of_another_name(self):
        torch = self.libtorch(self.prefix / "lib/libtorch")
        (self.root / "other").symlink_to(self.prefix / "bin/lorikeet")
        self.assert_uses(self.start(program=self.root / "other"), torch / "lib")

    def test_the_variable_may_name_a_wheel_its_site_packages_or_a_virtual_environment(self):
        venv = self.root / "venv"
        site = venv / "lib/python3.11/site-packages"
        torch = self.libtorch(site / "torch")
        for named in (torch, site, venv):
            with self.subTest(named):
                self.assert_uses(self.start(LORIKEET_LIBTORCH=str(named)), torch / "lib")

    def test_the_variable_wins_over_the_folder_beside_it_and_that_over_the_one_of_the_build(self):
        built = self.libtorch(self.root / "built/torch")
        self.built_with(built)
        self.assert_uses(self.start(), built / "lib")
        beside = self.libtorch(self.prefix / "lib/libtorch")
        self.assert_uses(self.start(), beside / "lib")
        named = self.libtorch(self.root / "named")
        self.assert_uses(self.start(LORIKEET_LIBTORCH=str(named)), named / "lib")

    def test_the_wheels_cuda_libraries_and_the_callers_path_follow(self):
        site = self.root / "site"
        torch = self.libtorch(site / "torch")
        (site / "nvidia/cu13/lib").mkdir(parents=True)
        (self.prefix / "lib").mkdir()
        (self.prefix / "lib/libtorch").symlink_to(torch)
        result = self.start(LD_LIBRARY_PATH="/callers")
        self.assert_uses(result, torch / "lib", f"{torch}/../nvidia/cu13/lib", "/callers")

    def test_no_libtorch_is_one_sentence_and_exit_code_3(self):
        self.built_with(self.root / "gone")
        self.assert_refuses(
            self.start(), "found no libtorch", VERSION, "LORIKEET_LIBTORCH", str(self.prefix / "lib/libtorch")
        )

    def test_a_variable_that_names_none_is_refused_though_there_is_one_beside_it(self):
        self.libtorch(self.prefix / "lib/libtorch")
        self.assert_refuses(
            self.start(LORIKEET_LIBTORCH=str(self.root)), "LORIKEET_LIBTORCH names", str(self.root)
        )

    def test_another_version_is_refused(self):
        self.libtorch(self.prefix / "lib/libtorch", version="2.7.1")
        self.assert_refuses(self.start(), f"needs libtorch {VERSION}", "2.7.1")


if __name__ == "__main__":
    unittest.main()
