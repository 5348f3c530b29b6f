"""What a run writes for TensorBoard, read by a reader of this test's own."""

import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import harness

ON = "metrics.tensorboard=true"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The contents of a TFRecord file, whose checksums are checked."""
    while data:
        length, length_crc = struct.unpack("<QI", data[:12])
        assert length_crc == masked(data[:8])
        content, (crc,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert len(content) == length and crc == masked(content)
        yield content
        data = data[16 + length :]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protobuf message's fields: integers, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                assert kind == 2, kind
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def read(path):
    """The events of a file: dictionaries with wall_time, step, and one of version, session, scalars."""
    events = []
    for record in records(path.read_bytes()):
        event = {"step": 0}
        for number, value in fields(record):
            if number == 1:
                (event["wall_time"],) = struct.unpack("<d", value)
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value.decode()
            elif number == 7:
                event["session"] = dict(fields(value))[1]
            elif number == 5:
                values = [dict(fields(v)) for _, v in fields(value)]
                event["scalars"] = {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values}
        events.append(event)
    return events


def event_files(folder):
    return sorted(p for p in pathlib.Path(folder).rglob("*") if "tfevents" in p.name)


def shown(folder):
    """{tag: {step: value}} as TensorBoard shows it: a session's start drops what it repeats."""
    tags = {}
    for path in event_files(folder):
        for event in read(path):
            if event.get("session") == 1:
                for tag, points in tags.items():
                    tags[tag] = {step: value for step, value in points.items() if step < event["step"]}
            for tag, value in event.get("scalars", {}).items():
                assert event["step"] not in tags.setdefault(tag, {}), (tag, event["step"])
                tags[tag][event["step"]] = value
    return tags


def lines(folder):
    return [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.validated = ("data.validation.fraction=0.1", "data.validation.every_steps=5")
        cls.whole = cls.programs.work / "whole"
        result = cls.programs.train(cls.whole, ON, "metrics.log_every_steps=7", *cls.validated)
        assert result.returncode == 0, result.stderr

    def train(self, output, *overrides, code=0):
        result = self.programs.train(output, *overrides)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def require_shows_the_metrics(self, folder):
        """Every number of metrics.jsonl is shown, and nothing else."""
        tags = shown(folder)
        points = sum(len(points) for points in tags.values())
        numbers = 0
        for line in lines(folder):
            for field, value in line.items():
                if field == "step" or not isinstance(value, (int, float)):
                    continue
                numbers += 1
                name = field.removeprefix("val_")
                (tag,) = [t for t in tags if t.split("/", 1)[1] == name and t.startswith("validation/") == (name != field)]
                self.assertTrue(math.isclose(tags[tag][line["step"]], value, rel_tol=1e-6), (tag, line["step"]))
        self.assertEqual(points, numbers)
        return tags

    def test_every_step_and_validation_is_an_event_at_the_top_of_the_runs_folder(self):
        (path,) = event_files(self.whole)
        self.assertEqual(path.parent, self.whole)
        tags = self.require_shows_the_metrics(self.whole)
        self.assertEqual(sorted(tags["train/loss"]), list(range(1, 13)))
        self.assertEqual(sorted(tags["validation/loss"]), [5, 10, 12])
        for tag in ("train/grad_norm", "train/lr", "speed/tokens_per_second", "time/step_seconds", "time/data_seconds",
                    "memory/memory_peak_bytes"):
            self.assertEqual(len(tags[tag]), 12, tag)
        version, start, *steps = read(path)
        self.assertEqual((version["version"], start["session"], start["step"]), ("brain.Event:2", 1, 1))
        times = [event["wall_time"] for event in steps]
        self.assertEqual(times, sorted(times))

    def test_without_the_setting_there_is_none(self):
        output = self.programs.work / "without"
        self.train(output, "training.max_steps=3")
        self.assertEqual(event_files(output), [])

    def test_a_resumed_run_takes_back_the_steps_that_it_repeats(self):
        output = self.programs.work / "resumed"
        shutil.copytree(self.whole, output)
        shutil.rmtree(output / "checkpoints" / "step_12")
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))
        self.assertIn("resuming after step 9", self.train(output, ON, *self.validated))
        first, second = event_files(output)
        self.assertEqual(first.read_bytes(), event_files(self.whole)[0].read_bytes())
        self.assertEqual(read(second)[1]["session"], 1)
        self.assertEqual([event["step"] for event in read(second)][1:], [10, 10, 10, 11, 12, 12])
        self.require_shows_the_metrics(output)

    def test_a_run_that_was_finished_already_adds_nothing(self):
        before = event_files(self.whole)
        self.train(self.whole, ON, *self.validated)
        self.assertEqual(event_files(self.whole), before)

    def test_the_setting_may_change_when_a_run_goes_on(self):
        output = self.programs.work / "later"
        constant = ("lr_scheduler.name=constant",)
        self.train(output, "training.max_steps=3", *constant)
        self.train(output, "training.max_steps=6", ON, *constant)
        self.assertEqual(sorted(shown(output)["train/loss"]), [4, 5, 6])

    def test_a_run_that_takes_anothers_place_removes_its_events(self):
        output = self.programs.work / "replaced"
        shutil.copytree(self.whole, output)
        others = output / "events.out.tfevents.1700000000.host.1.0"
        others.write_bytes(b"")
        self.train(output, ON, "lora.rank=4", "training.max_steps=3", "checkpoint.overwrite=true")
        ours = [path for path in event_files(output) if path != others]
        self.assertEqual(len(ours), 1)
        self.assertTrue(others.exists())
        others.unlink()
        self.require_shows_the_metrics(output)
        self.train(output, "lora.rank=2", "training.max_steps=3", "checkpoint.overwrite=true")
        self.assertEqual(event_files(output), [])

    def test_of_several_processes_the_first_writes(self):
        output = self.programs.work / "ranks"
        command = [str(self.programs.folder / "lorikeet"), "run", "--nproc", "2", "lora_finetune_distributed", "--config",
                   str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", "training.max_steps=3", ON]
        result = subprocess.run(command, env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                                timeout=180, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(event_files(output)), 1)
        tags = shown(output)
        self.assertEqual(sorted(tags["train/loss"]), [1, 2, 3])
        for collective, sent in lines(output)[0]["comm_bytes_by_collective"].items():
            self.assertEqual(tags[f"comm/comm_bytes_by_collective/{collective}"][1], sent)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
