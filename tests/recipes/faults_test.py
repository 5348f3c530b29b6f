"""A run that is killed, or whose disk is full, at any of its file calls goes on to the same adapter.

A preloaded library (tests/support/fault_injection.cpp) counts the calls of a short run that change files: validation,
early stop, the best adapter, checkpoints and their removal are in it. For a call n a fresh run is killed at it, or
finds the disk full from it on; then the same command is given again. Its adapter must be the undisturbed run's, byte
for byte, and nothing temporary may be left. By default some fifty calls are tried, one for every file that the run
writes; LORIKEET_TEST_FAULTS=all tries every one (scripts/faults).
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import harness

LIBRARY = pathlib.Path(sys.argv[2])
ALL = os.environ.get("LORIKEET_TEST_FAULTS") == "all"
WORKERS = len(os.sched_getaffinity(0))
KILLED = -9


def file_of(call):
    """The file or folder that the call changes, without numbers and random endings."""
    path = call.split(" ", 2)[2]
    path = re.sub(r"\.tmp-[0-9a-f]+", ".tmp", path)
    path = re.sub(r"\.lorikeet-probe-\w+", ".lorikeet-probe", path)
    return re.sub(r"[0-9a-f]{16,}|\d+", "#", path)


def saved_steps(output):
    return sorted(int(path.name[5:]) for path in (output / "checkpoints").glob("step_*") if path.name[5:].isdigit())


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        result, cls.calls = cls.run_counted("whole", {})
        assert result.returncode == 0, result.stderr
        assert "stopped early" in result.stderr, result.stderr
        cls.whole = harness.tree(cls.work / "whole" / "run")
        print(f"{len(cls.calls)} calls of {len(set(map(file_of, cls.calls)))} files", file=sys.stderr)

    @classmethod
    def run_counted(cls, name, fault):
        """Runs in a folder of that name; the result, and the calls that changed files."""
        folder = cls.work / name
        (folder / "cache").mkdir(parents=True, exist_ok=True)
        log = cls.work / f"{name}.calls"
        environment = {
            **harness.ENVIRONMENT, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(LIBRARY), "LORIKEET_FAULT_LOG": str(log),
            "LORIKEET_FAULT_ROOTS": str(folder), **fault,
        }
        command = cls.programs.command(
            folder / "run", "lora.rank=2", "lora.target_modules=[q_proj]", "precision.preset=fp32", "batch.global=2",
            "training.max_steps=12", "optimizer.lr=0.5", "checkpoint.save_every_steps=2",
            "checkpoint.keep_last=1", f"data.validation.path={cls.short_file()}", "data.validation.every_steps=1",
            "data.validation.patience=2", f"data.cache_dir={folder / 'cache' / 'tokens'}", "metrics.profile_steps=[2]",
        )
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False, errors="replace"
        )
        prefix = str(folder) + "/"
        calls = [line.replace(prefix, "") for line in log.read_text().splitlines()] if log.exists() else []
        return result, calls

    @classmethod
    def short_file(cls):
        path = cls.work / "heldout.jsonl"
        if not path.exists():
            rows = (harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)
            path.write_text("".join(rows[:4]))
        return path

    def points(self):
        """Calls to try: one for each file, of another function from file to file."""
        if ALL:
            return list(range(1, len(self.calls) + 1))
        calls = collections.defaultdict(list)
        for number, call in enumerate(self.calls, 1):
            calls[file_of(call)].append(number)
        return [numbers[i % len(numbers)] for i, numbers in enumerate(calls.values())]

    def try_points(self, how, points):
        def one(number):
            name = f"{how}{number}"
            first, _ = self.run_counted(name, {"LORIKEET_FAULT_AT": str(number), "LORIKEET_FAULT_HOW": how})
            kept = saved_steps(self.work / name / "run")
            second, _ = self.run_counted(name, {})
            return number, first, kept, second

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for number, first, kept, second in pool.map(one, points):
                with self.subTest(how=how, call=self.calls[number - 1]):
                    if how == "kill":
                        self.assertEqual(first.returncode, KILLED, first.stderr)
                    else:  # what a full disk can't stop, such as a deletion or the cache, does no harm
                        self.assertIn(first.returncode, (0, 3), first.stderr)
                        if first.returncode == 3:
                            self.assertIn("No space left on device", first.stderr)
                            for step in kept[-1:]:
                                self.assertIn(f"the checkpoint of step {step} stays, and the same command goes on from it", first.stderr)
                    self.assertEqual(second.returncode, 0, second.stderr)
                    self.require_equal_to_whole(self.work / f"{how}{number}" / "run")

    def require_equal_to_whole(self, output):
        ours = harness.tree(output)
        self.assertEqual(sorted(ours), sorted(self.whole))  # no leftovers, and nothing missing
        for name, content in self.whole.items():
            if name.endswith(".safetensors"):
                self.assertEqual(ours[name], content, name)
        self.assertEqual(harness.metrics(output), harness.metrics(self.work / "whole" / "run"))

    def test_a_run_that_goes_on_needs_no_space_for_what_it_replaces(self):
        run = self.work / "space" / "run"
        self.assertEqual(self.run_counted("space", {})[0].returncode, 0)
        facts = json.loads((run / "run.json").read_text())
        checkpoint = 12 * facts["adapter_parameters"] + 2**20
        free = {"LORIKEET_FAULT_FREE_BYTES": str(2 * checkpoint)}  # one that is kept asks for three times as much
        refused, _ = self.run_counted("no-space", free)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("[disk] expected at least", refused.stderr)
        (run / "run.json").write_text(json.dumps({**facts, "finished": False}))
        result, _ = self.run_counted("space", free)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.require_equal_to_whole(run)

    def test_an_output_folder_that_is_deleted_while_an_adapter_is_written_ends_the_run_with_an_error(self):
        best = ("data.validation.fraction=0.1", "data.validation.every_steps=1")
        for name, slow_folder, settings in (("checkpoints/*", "checkpoints", ("checkpoint.save_every_steps=1",)), ("best", "", best)):
            output = self.work / f"deleted-{name[:4]}" / "run"
            slow = {"LD_PRELOAD": str(LIBRARY), "LORIKEET_FAULT_ROOTS": str(output / slow_folder), "LORIKEET_FAULT_AT": "1",
                    "LORIKEET_FAULT_HOW": "slow"}
            with self.subTest(name), subprocess.Popen(self.programs.command(output, *settings), env={**harness.ENVIRONMENT, **slow},
                                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                self.assertTrue(harness.wait_for(lambda: any(output.glob(f"{name}.tmp-*/adapter_model.safetensors"))))
                process.send_signal(signal.SIGSTOP)
                shutil.rmtree(output)
                process.send_signal(signal.SIGCONT)
                _, said = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 1, said)
                self.assertIn("is gone: it was deleted while the run was going on; no checkpoint is there", said)
                self.assertFalse(output.exists())

    def test_killed_at_a_file_call(self):
        points = self.points()
        self.assertGreaterEqual(len(points), 40)
        self.try_points("kill", points)

    def test_killed_between_the_two_renames_of_a_file_system_that_cant_exchange_folders(self):
        no_exchange = {"LORIKEET_FAULT_NO_EXCHANGE": "1"}  # as NFS
        result, calls = self.run_counted("renames", no_exchange)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.require_equal_to_whole(self.work / "renames" / "run")
        # The last one of each folder.
        exchanges = {file_of(call): number for number, call in enumerate(calls, 1) if call.split()[1] == "renameat2"}
        self.assertIn("run/best", exchanges)
        for file, number in exchanges.items():
            with self.subTest(file):
                name = f"renames{number}"
                second_rename = {"LORIKEET_FAULT_AT": str(number + 2), "LORIKEET_FAULT_HOW": "kill"}
                result, calls = self.run_counted(name, {**no_exchange, **second_rename})
                self.assertEqual(result.returncode, KILLED, result.stderr)
                target = calls[number - 1].split(" ", 2)[2]
                self.assertFalse((self.work / name / target).exists())
                saved = [path.name.split(".")[0] for path in (self.work / name / "run" / "checkpoints").iterdir()]
                result, _ = self.run_counted(name, no_exchange)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"resuming after {saved[0].replace('_', ' ')}", result.stderr)
                self.require_equal_to_whole(self.work / name / "run")

    def test_a_signal_before_the_lock_is_had_leaves_the_lock_of_another_run(self):
        folder = self.work / "other"
        output, log = folder / "run", self.work / "other.calls"
        fault = {"LD_PRELOAD": str(LIBRARY), "LORIKEET_FAULT_ROOTS": str(folder), "LORIKEET_FAULT_LOG": str(log),
                 "LORIKEET_FAULT_AT": "1", "LORIKEET_FAULT_HOW": "stop"}
        process = subprocess.Popen(self.programs.command(output), env={**harness.ENVIRONMENT, **fault},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        status = pathlib.Path(f"/proc/{process.pid}/stat")
        self.assertTrue(harness.wait_for(lambda: status.read_text().rsplit(")", 1)[1].split()[0] == "T"))
        self.assertEqual(log.read_text().split()[1], "mkdir")  # it is about to make its folder
        lock = output / ".lorikeet.lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(harness.stop(process, signal.SIGCONT), 130)
        self.assertTrue(lock.exists())

    def test_disk_full_from_a_file_call_on(self):
        points = self.points()
        self.try_points("full", points if ALL else points[::4])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
