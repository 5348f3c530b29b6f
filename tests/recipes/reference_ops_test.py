"""LORIKEET_REFERENCE_OPS=1: the same losses by plain ATen calls, said in the log and in run.json."""

import json
import subprocess
import sys
import unittest

import harness

SAID = "LORIKEET_REFERENCE_OPS=1: operators run their references"


class ReferenceOps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])

    @classmethod
    def tearDownClass(cls):
        cls.programs.temporary.cleanup()

    def run_with(self, value, command):
        environment = {**harness.ENVIRONMENT, "LORIKEET_REFERENCE_OPS": value}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def train(self, value, *overrides):
        """Losses of a short run, and what it said."""
        output = self.programs.work / f"run-{value}-{'-'.join(overrides)}"
        result = self.run_with(value, self.programs.command(output, "training.max_steps=4", "lora.dropout=0.1", *overrides))
        self.assertEqual(result.returncode, 0, result.stderr)
        facts = json.loads((output / "run.json").read_text())
        self.assertEqual(facts["reference_ops"], value == "1")
        self.assertEqual(result.stderr.count(SAID), int(value == "1"))
        return [line["loss"] for line in harness.metrics(output)], facts

    def test_a_run_gives_the_kernels_losses_by_other_code(self):
        # fp32 sums in another order; bf16 rounds each result to 8 bits. Widened products are summed in fp32 and rounded once
        # by both. Native ones are another library's on either side where the CPU has bf16 and no AMX: half of the last bit
        # is 2e-3, and the references' own losses are up to 1.3e-3 away from fp32's, the kernels' 7e-4.
        for relative, *overrides in ((1e-5, "precision.preset=fp32"),
                                     (1e-3, "precision.preset=bf16", "precision.matmul=widened"),
                                     (2e-3, "precision.preset=bf16")):
            kernels, before = self.train("0", *overrides)
            references, after = self.train("1", *overrides)
            for kernel, reference in zip(kernels, references, strict=True):
                self.assertLess(abs(kernel - reference), relative * kernel)
            # The plan ran the references too: their memory is another one.
            self.assertNotEqual(after["expected_memory_bytes"], before["expected_memory_bytes"])

    def test_a_run_that_goes_on_with_other_operators_says_so_and_keeps_it_recorded(self):
        for begun, now in (("0", "1"), ("1", "0")):
            output = self.programs.work / f"resumed-{begun}"
            command = self.programs.command(output, "lr_scheduler.name=constant")
            for value, steps, warned, fact in ((begun, 3, False, begun == "1"), (now, 4, True, "partly"), (begun, 5, False, "partly")):
                result = self.run_with(value, [*command, f"training.max_steps={steps}"])
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(f"resuming after step {steps - 1}" in result.stderr, steps > 3)
                self.assertEqual("its losses stay the same but for rounding" in result.stderr, warned, result.stderr)
                self.assertEqual(json.loads((output / "run.json").read_text())["reference_ops"], fact)

    def test_another_value_is_refused(self):
        result = self.run_with("yes", self.programs.command(self.programs.work / "none", "training.max_steps=4"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("expected 1 or 0 as LORIKEET_REFERENCE_OPS, got 'yes'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
