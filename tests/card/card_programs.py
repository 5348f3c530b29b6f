"""Runs the programs on the CPU and on the fake card, and reads what both report."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recipes"))
import harness

CPU, FIRST, SECOND, BOTH = "cpu", "cuda:0", "cuda:1", "cuda"
called_operators = set()  # of all runs on the fake card


class CardPrograms(unittest.TestCase):
    """Arguments of the test: the folder of the programs, that of those linked to the fake card, that of the driver."""

    @classmethod
    def setUpClass(cls):
        # Configured micro-batches, of more than a step's tokens: else each run on a card begins with a trial of
        # 16384 tokens, which takes the host 40 s.
        cls.programs = harness.Programs(sys.argv[1], micro_tokens=1024)
        cls.work = cls.programs.work
        cls.card_folder, cls.driver = pathlib.Path(sys.argv[2]), sys.argv[3]

    def start(self, program, arguments, device, memory_mib=None, capability=None, total_mib=None, references=False,
              wrong_operator=None):
        """The process of a program on a device; its reports come to the folder of its attribute `reports`."""
        folder = self.programs.folder if device == CPU else self.card_folder
        # One thread: the card's work is the host's here, and two processes run beside each other.
        environment = {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}
        reports = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        if device != CPU:
            environment["LD_LIBRARY_PATH"] = self.driver
            environment["FAKE_CARD_REPORTS"] = str(reports)
        if memory_mib is not None:
            environment["FAKE_CARD_MIB"] = str(memory_mib)
        if total_mib is not None:
            environment["FAKE_CARD_TOTAL_MIB"] = str(total_mib)
        if capability is not None:
            environment["FAKE_CARD_CAPABILITY"] = str(capability)
        if wrong_operator is not None:
            environment["FAKE_CARD_WRONG_OPERATOR"] = wrong_operator
        if references:
            environment["LORIKEET_REFERENCE_OPS"] = "1"
        command = [str(folder / program), *map(str, arguments), f"device={device}"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.reports = reports if device != CPU else None
        return process

    def finish(self, process, code=0, cards=1):
        """What the process printed, and the reports of the processes that used a card, in which nothing may be wrong:
        one report for one card, a list for more."""
        out, said = process.communicate(timeout=180)
        self.assertEqual(process.returncode, code, said)
        if process.reports is None:
            return out, said, None
        reports = [json.loads(file.read_text()) for file in process.reports.iterdir()]
        self.assertEqual(len(reports), cards)
        for report in reports:
            called_operators.update(report["operators"])
            self.assertEqual(report["hazards"], {})
            self.assertLessEqual(len(report["contexts"]), 1, "a process takes memory of a card that it doesn't work with")
            self.assertEqual(report["uploads"] - report["pinned_uploads"], report["waits"].get("copy to the card", 0))
        return out, said, reports[0] if cards == 1 else reports

    def start_training(self, name, device, *overrides, **options):
        config = ["--config", self.work / "config.yaml", f"checkpoint.output_dir={self.work / name}", *overrides]
        return self.start("lora_finetune_single_device", config, device, **options)

    def train(self, name, device, *overrides, **options):
        """The report of a whole run into the folder `name`."""
        return self.finish(self.start_training(name, device, *overrides, **options))[2]

    def train_beside(self, name, devices, *overrides):
        """The same run on several devices at once, into the folders `name` with the device behind it; their reports."""
        processes = [self.start_training(self.folder_of(name, device), device, *overrides) for device in devices]
        return [self.finish(process)[2] for process in processes]

    @staticmethod
    def folder_of(name, device):
        return f"{name}-{device.replace(':', '')}"

    def losses(self, name):
        return [line["loss"] for line in harness.metrics(self.work / name)]

    def assert_losses_near(self, name, device, relative):
        expected, got = self.losses(self.folder_of(name, CPU)), self.losses(self.folder_of(name, device))
        self.assertEqual(len(got), len(expected))
        for step, (cpu, card) in enumerate(zip(expected, got), start=1):
            self.assertLess(abs(card - cpu), relative * cpu, f"step {step}: {card} on {device}, {cpu} on the CPU")


class ModelRuns(CardPrograms):
    """Runs of another model than the example's, which `write_model` writes into a folder."""

    STEPS = 3
    FP32_RELATIVE = 1e-5  # the same sums in another order

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = cls.write_model(cls.work / "model")

    def settings(self, *more):
        return (f"model.path={self.base}", f"training.max_steps={self.STEPS}", *more)

    def check(self, name, relative, *more):
        """The card's report; its losses are the CPU's."""
        report = self.train_beside(name, (CPU, SECOND), *self.settings(*more))[1]
        self.assert_losses_near(name, SECOND, relative)
        return report

    def check_two_cards(self, *more, name="one"):
        """Two cards compute what one does, replicated and sharded."""
        settings = self.settings("precision.preset=fp32", *more)
        self.finish(self.start_training(name, SECOND, *settings))
        for strategy in ("replicate", "shard"):
            command = ["run", "--nproc", 2, "lora_finetune_distributed", "--config", self.work / "config.yaml",
                       f"checkpoint.output_dir={self.work / f'{name} {strategy}'}", f"distributed.strategy={strategy}", *settings]
            self.finish(self.start("lorikeet", command, BOTH), cards=2)
            for alone, together in zip(self.losses(name), self.losses(f"{name} {strategy}"), strict=True):
                self.assertLess(abs(alone - together), self.FP32_RELATIVE * alone, strategy)
