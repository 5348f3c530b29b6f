"""`lorikeet bench`: one device against several, and two runs against each other."""

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

SHORT = ("--repeats", "2", "--steps", "2", "--warmup", "1")


class Scaling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.config = cls.programs.work / "config.yaml"
        cls.environment = {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}

    def command(self, *arguments):
        return [str(self.programs.folder / "lorikeet"), "bench", *map(str, arguments)]

    def bench(self, *arguments, timeout=300):
        return subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True, timeout=timeout,
                              check=False)

    def test_one_and_two_devices_stand_in_one_table_with_a_verdict(self):
        output = self.programs.work / "result"
        result = self.bench("scaling", self.config, "lora.rank=4", "--devices", "1,2", *SHORT, "--output", output, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report, json.loads((output / "scaling.json").read_text()))
        one, two = report["rows"]
        self.assertEqual([row["devices"] for row in (one, two)], [1, 2])
        for row in (one, two):
            self.assertEqual(row["tokens_per_second"]["count"], 2)
            self.assertEqual(len(row["device_names"]), row["devices"])
            self.assertEqual(row["threads_each"], 1)
            self.assertGreater(row["memory_peak_bytes"], 0)
        self.assertEqual(one["loss_difference"], 0)
        self.assertEqual(one["comm_share"], 0)
        # bf16 rounds gradients of other micro-batches otherwise; a mean over hundreds of labels moves far less.
        self.assertLess(two["loss_difference"], 1e-2)
        self.assertAlmostEqual(two["efficiency"], two["speed_up"]["median"] / 2)
        self.assertRegex(report["verdict"], r"^2 devices (are|measured) \d\.\d\dx of one(: |; .+ --steps 8 .+ Until then )train on (one|2); the command is "
                                            r"`lorikeet run .*config\.yaml lora\.rank=4`\.$")
        self.assertIn("| 2 devices | 2 |", (output / "scaling.md").read_text())
        kept = sorted(p.name for p in output.iterdir())
        self.assertEqual(kept, ["runs", "scaling.json", "scaling.md"])
        for n in (1, 2):
            for number in (1, 2):
                run = output / "runs" / f"devices_{n}_round_{number}"
                self.assertEqual(sorted(p.name for p in run.iterdir()), ["config.yaml", "log.txt", "metrics.jsonl", "run.json"])
                self.assertEqual(json.loads((run / "run.json").read_text())["world_size"], n)
        order = re.findall(r"round (\d) of 2, (\d) device", result.stderr)
        self.assertEqual(order, [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")])

    def test_synthetic_rows_replace_the_data(self):
        output = self.programs.work / "synthetic"
        result = self.bench("scaling", self.config, "data.train.path=not-there.jsonl", "--devices", "1", *SHORT, "--synthetic",
                            "32x48", "--output", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Only 1 device could be measured", result.stdout)
        lines = harness.metrics(output / "runs" / "devices_1_round_1")
        self.assertEqual([(line["examples"], line["tokens"]) for line in lines], [(8, 8 * 48)] * 3)

    def test_a_number_that_fails_is_told_with_its_error_and_the_others_stay(self):
        result = self.bench("scaling", self.config, "distributed.strategy=hybrid", "distributed.shard_degree=3", "--devices", "1,2",
                            *SHORT, "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        one, two = json.loads(result.stdout)["rows"]
        self.assertEqual(one["tokens_per_second"]["count"], 2)
        self.assertIsNone(two["tokens_per_second"])
        self.assertEqual(len(two["runs"]), 1)  # not tried again
        self.assertEqual(two["runs"][0]["exit_code"], 2)
        self.assertIn("shard_degree", two["runs"][0]["error"])

    def test_where_all_fail_the_exit_code_is_theirs(self):
        result = self.bench("scaling", self.config, "lora.target_modules=[nothing]", "--devices", "1,2", *SHORT)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("matches no module", result.stdout)
        self.assertIn("No run ended well", result.stdout)

    def test_what_cannot_be_is_refused_before_anything_runs(self):
        full = self.programs.work / "full"
        full.mkdir()
        (full / "file").write_text("")
        for message, *arguments in (
            ("got one of them twice", "--devices", "2,2"),
            ("expected ROWSxLENGTH", "--devices", "1", "--synthetic", "64"),
            ("expected ROWSxLENGTH", "--devices", "1", "--synthetic", "64x1"),
            ("is not empty", "--devices", "1", "--output", full),
            ("can't be divided among 2 devices", "--devices", "1,2", "--total-threads", "3"),
            ("--threads", "--devices", "1", "--total-threads", "2", "--threads", "1"),
            ("--devices", "--devices", "0"),
            ("--devices", "--steps", "3"),
            ("unknown key", "--devices", "1", "optimiser.lr=1"),
        ):
            with self.subTest(message=message):
                result = self.bench("scaling", self.config, *arguments, timeout=20)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)
        self.assertEqual([p.name for p in full.iterdir()], ["file"])

    def test_threads_in_all_are_divided_when_asked(self):
        result = self.bench("scaling", self.config, "--devices", "1,2", "--total-threads", "2", "--repeats", "1", "--steps", "1",
                            "--warmup", "0", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual([row["threads_each"] for row in report["rows"]], [2, 1])
        self.assertIn("of single runs no spread is known", report["verdict"])
        self.assertIn("Processes have different numbers of threads.", report["notes"])

    def test_an_interrupt_ends_the_children_and_shows_what_was_measured(self):
        output = self.programs.work / "interrupted"
        process = subprocess.Popen(
            self.command("scaling", self.config, "--devices", "1,2", "--repeats", "50", "--steps", "2", "--output", output),
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        runs = output / "runs"
        self.assertTrue(harness.wait_for(lambda: runs.exists() and len(list(runs.glob("*/run.json"))) >= 2, 120))
        children = self.children(process.pid)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertRegex(shown, r"1 device +\d+ +\d+")
        self.assertIn("interrupted", said)
        self.assertTrue((output / "scaling.md").exists())
        self.assertEqual(list(output.glob("lorikeet-bench-*")), [])
        self.assertTrue(harness.wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children), 5))

    @staticmethod
    def children(parent):
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and int(re.search(r"\) \S (\d+)", (entry / "stat").read_text()).group(1)) == parent:
                    found.append(entry.name)
            except (OSError, AttributeError):
                continue  # it has ended meanwhile
        return found

    def test_data_that_change_between_runs_are_noticed(self):
        rows = self.programs.work / "changing.jsonl"
        shutil.copy(harness.EXAMPLE / "train.jsonl", rows)
        output = self.programs.work / "changed"
        process = subprocess.Popen(
            self.command("scaling", self.config, f"data.train.path={rows}", "--devices", "1", *SHORT, "--output", output),
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        # Each run writes its run.json when it has read its data, and once more at its end.
        self.assertTrue(harness.wait_for(lambda: any(output.glob("lorikeet-bench-*/run/run.json")), 120))
        changed = rows.with_suffix(".new")
        changed.write_text("\n".join(rows.read_text().splitlines()[:-1]) + "\n")
        os.replace(changed, rows)
        _, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 2, said)
        self.assertRegex(said, r"the run of round 1 of 2, 1 device and the run of round 2 of 2, 1 device did different work, so "
                               r"that their rates can't be compared: data: \w+ and \w+")

    def test_two_finished_runs_are_compared_by_their_folders(self):
        folders = [self.programs.work / name for name in ("one", "other", "fp32")]
        for folder, overrides in zip(folders, ([], ["metrics.log_every_steps=3"], ["precision.preset=fp32"])):
            result = self.programs.train(folder, "training.max_steps=4", *overrides)
            self.assertEqual(result.returncode, 0, result.stderr)
        result = self.bench("compare", *folders[:2], "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual([row["name"] for row in report["rows"]], list(map(str, folders[:2])))
        self.assertEqual(report["rows"][1]["loss_difference"], 0)
        self.assertIn("as fast as", report["verdict"])
        for message, folder, *more in (
            ("precision policy: ", folders[2]),
            ("found no run.json", self.programs.work),
            ("no step behind the 4 of its warm-up", folders[1], "--warmup", "4"),
        ):
            result = self.bench("compare", folders[0], folder, *more)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(message, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
