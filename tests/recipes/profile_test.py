"""metrics.profile_steps: traces of steps that change nothing else."""

import json
import signal
import subprocess
import sys
import unittest

import harness

ROUNDING_US = 0.01  # times are written in ns


def ranges(path):
    """The trace's ranges, by name: lists of (begin, end, thread, args)."""
    found = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") == "user_annotation" and event["ph"] == "X":
            found.setdefault(event["name"], []).append(
                (event["ts"], event["ts"] + event["dur"], event["tid"], event["args"]))
    return found


def within(inner, outer):
    return inner[0] >= outer[0] - ROUNDING_US and inner[1] <= outer[1] + ROUNDING_US


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.plain = cls.programs.work / "plain"
        cls.traced = cls.programs.work / "traced"
        for output, overrides in ((cls.plain, []), (cls.traced, ["metrics.profile_steps=[2, 11]"])):
            result = cls.programs.train(output, *overrides)
            assert result.returncode == 0, result.stderr

    def traces(self, output):
        return sorted(p.name for p in output.glob("trace_*"))

    def test_the_steps_that_are_asked_for_have_a_file_and_no_others(self):
        self.assertEqual(self.traces(self.traced), ["trace_step_11.json", "trace_step_2.json"])
        self.assertEqual(self.traces(self.plain), [])

    def test_losses_and_adapter_are_those_of_a_run_without_to_the_bit(self):
        self.assertEqual(harness.metrics(self.traced), harness.metrics(self.plain))
        self.assertEqual(*((output / "adapter_model.safetensors").read_bytes() for output in (self.traced, self.plain)))

    def test_ranges_nest_and_tell_their_sizes(self):
        line = harness.metrics(self.traced)[1]
        found = ranges(self.traced / "trace_step_2.json")
        step, = found["step"]
        self.assertEqual(step[3]["step"], 2)
        self.assertEqual(sum(micro[3]["tokens"] for micro in found["micro-batch"]), line["tokens"])
        for name in ("forward", "backward"):
            self.assertEqual(len(found[name]), len(found["micro-batch"]))
            for inner, micro in zip(found[name], found["micro-batch"]):
                self.assertTrue(within(inner, micro), name)
        for name in ("data", "micro-batch", "optimizer", "wait for the device"):
            self.assertTrue(all(within(one, step) for one in found[name]), name)
        self.assert_nested(found)

    def assert_nested(self, found):
        """Of two ranges of a thread one holds the other, or they don't meet."""
        every = sorted(one[:3] for ones in found.values() for one in ones)
        for i, a in enumerate(every):
            for b in every[i + 1:]:
                apart = b[0] >= a[1] - ROUNDING_US
                self.assertTrue(a[2] != b[2] or apart or within(b, a) or within(a, b), (a, b))

    def test_operators_stand_inside_the_ranges(self):
        events = json.loads((self.traced / "trace_step_2.json").read_text())["traceEvents"]
        step, = ranges(self.traced / "trace_step_2.json")["step"]
        operators = [e for e in events if e.get("cat") == "cpu_op"]
        self.assertGreater(len(operators), 50)
        for e in operators:
            self.assertTrue(within((e["ts"], e["ts"] + e["dur"]), step), e["name"])
        self.assertTrue(any("Input Dims" in e["args"] for e in operators))

    def test_an_interrupted_run_goes_on_with_its_traces_and_the_same_bytes(self):
        output = self.programs.work / "resumed"
        overrides = ["metrics.profile_steps=[1, 12]", "training.max_steps=12", "checkpoint.save_every_steps=100"]
        process = self.programs.start(output, *overrides)
        metrics = output / "metrics.jsonl"
        self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
        self.assertEqual(harness.stop(process, signal.SIGINT), 130)
        self.assertEqual(self.traces(output), ["trace_step_1.json"])
        result = self.programs.train(output, *overrides)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.traces(output), ["trace_step_1.json", "trace_step_12.json"])
        self.assertEqual(harness.metrics(output), harness.metrics(self.plain))
        self.assertEqual(*((o / "adapter_model.safetensors").read_bytes() for o in (output, self.plain)))
        self.assertEqual(ranges(output / "trace_step_12.json")["step"][0][3]["step"], 12)

    def test_a_tool_that_reads_nvtx_sees_the_ranges_nested(self):
        reader = self.programs.folder.parent / "tests" / "liblorikeet_nvtx_reader.so"
        if not reader.exists():
            self.skipTest("built without NVTX's headers, which come with a CUDA compiler")
        command = self.programs.command(self.programs.work / "nvtx", "training.max_steps=1", "lr_scheduler.warmup_steps=0")
        result = subprocess.run(command, env={**harness.ENVIRONMENT, "NVTX_INJECTION64_PATH": str(reader)}, capture_output=True,
                                text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        open_ranges, seen = [], []
        for line in result.stderr.splitlines():
            if line.startswith("nvtx begin "):
                open_ranges.append(line.split()[2])
                seen.append("/".join(open_ranges))
            elif line == "nvtx end":
                open_ranges.pop()
        self.assertEqual(open_ranges, [])
        self.assertIn("nvtx begin step step=1\n", result.stderr)
        for path in ("step/data", "step/micro-batch/forward", "step/micro-batch/backward", "step/optimizer"):
            self.assertIn(path, seen)

    def test_a_run_that_replaces_another_removes_its_traces(self):
        output = self.programs.work / "replaced"
        for overrides in (["metrics.profile_steps=[1]", "training.max_steps=1"], ["training.max_steps=2"]):
            result = self.programs.train(output, "checkpoint.overwrite=true", "lr_scheduler.warmup_steps=0", *overrides)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.traces(output), [])

    def test_a_step_that_the_run_doesnt_have_is_refused(self):
        output = self.programs.work / "beyond"
        result = self.programs.train(output, "metrics.profile_steps=[3, 13]")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("[metrics.profile_steps] expected steps from 1 to 12", result.stderr)
        self.assertFalse(output.exists())
        self.assertEqual(self.programs.train(output, "metrics.profile_steps=[0]").returncode, 2)

    def test_every_rank_writes_its_own_with_its_collectives(self):
        output = self.programs.work / "ranks"
        command = [str(self.programs.folder / "lorikeet"), "run", "--nproc", "2", "lora_finetune_distributed", "--config",
                   str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", "training.max_steps=3",
                   "metrics.profile_steps=[2]"]
        result = subprocess.run(command, env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                                timeout=180, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.traces(output), ["trace_step_2_rank_0.json", "trace_step_2_rank_1.json"])
        line = json.loads((output / "metrics.jsonl").read_text().splitlines()[1])
        pids = set()
        for name in self.traces(output):
            found = ranges(output / name)
            pids |= {e["pid"] for e in json.loads((output / name).read_text())["traceEvents"] if e.get("cat") == "cpu_op"}
            reduced = sum(one[3]["bytes"] for one in found["all-reduce"])
            # Of two ranks each sends as much as it reduces.
            self.assertEqual(reduced, line["comm_bytes_by_collective"]["all-reduce"])
            self.assertIn("reduce gradients", found)
            self.assertEqual(len(found["wait for all-reduce"]), len(found["all-reduce"]))
            self.assert_nested({name: ones for name, ones in found.items() if not name.startswith("gloo:")})
        self.assertEqual(len(pids), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
