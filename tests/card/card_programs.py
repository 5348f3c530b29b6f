"""Runs the programs on the CPU and on the fake card, and reads what both report."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recipes"))
import harness

CPU, FIRST, SECOND = "cpu", "cuda:0", "cuda:1"


class CardPrograms(unittest.TestCase):
    """Arguments of the test: the folder of the programs, that of those linked to the fake card, that of the driver."""

    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.card_folder, cls.driver = pathlib.Path(sys.argv[2]), sys.argv[3]

    def start(self, program, arguments, device, memory_mib=None):
        """The process of a program on a device, its report in the attribute `report_file`."""
        folder = self.programs.folder if device == CPU else self.card_folder
        report = tempfile.NamedTemporaryFile(dir=self.work, suffix=".json", delete=False)
        # One thread: the card's work is the host's here, and two processes run beside each other.
        environment = {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}
        if device != CPU:
            environment["LD_LIBRARY_PATH"] = self.driver
            environment["LORIKEET_FAKE_CARD_REPORT"] = report.name
        if memory_mib is not None:
            environment["LORIKEET_FAKE_CARD_MIB"] = str(memory_mib)
        command = [str(folder / program), *map(str, arguments), f"device={device}"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.report_file = pathlib.Path(report.name)
        return process

    def finish(self, process, code=0):
        """What the process printed, and on a card its report, in which nothing may be wrong."""
        out, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, said)
        text = process.report_file.read_text()
        report = json.loads(text) if text else None
        if report is not None:
            self.assertEqual(report["hazards"], {})
            self.assertEqual(report["uploads"] - report["pinned_uploads"], report["waits"].get("copy to the card", 0))
        return out, said, report

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
