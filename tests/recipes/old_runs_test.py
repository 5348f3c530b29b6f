"""Runs that older versions began go on with today's programs, and come to the same adapter."""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

import numpy
from safetensors.numpy import load_file, save_file

import harness

OLD_RUNS = pathlib.Path(__file__).resolve().parent / "old_runs"
# Other processors sum fp32 in another order: five AdamW steps then differ by some 1e-5 of the update.
TOLERANCE = 1e-3


class OldRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])

    def copy(self, version, name):
        output = self.programs.work / name
        shutil.copytree(OLD_RUNS / version / "half", output)
        return output

    def resume(self, version, output):
        command = [
            str(self.programs.folder / "lora_finetune_single_device"), "--config",
            str(OLD_RUNS / version / "config.yaml"), f"checkpoint.output_dir={output}",
            f"data.cache_dir={self.programs.work / 'cache'}",
        ]
        return subprocess.run(
            command, cwd=harness.ROOT, env=harness.ENVIRONMENT, capture_output=True, text=True, timeout=120,
            check=False,
        )

    def distance(self, version, output):
        """Largest difference from the adapter of the whole run, as a part of that adapter's own change."""
        whole = load_file(OLD_RUNS / version / "whole" / "adapter_model.safetensors")
        begun = load_file(OLD_RUNS / version / "half" / "checkpoints" / "step_4" / "adapter_model.safetensors")
        ours = load_file(output / "adapter_model.safetensors")
        self.assertEqual(sorted(ours), sorted(whole))
        change = max(numpy.abs(whole[name] - begun[name]).max() for name in whole)
        return max(numpy.abs(ours[name] - whole[name]).max() for name in whole) / change

    def test_a_half_done_run_goes_on_to_the_same_adapter_and_losses(self):
        versions = sorted(p.name for p in OLD_RUNS.iterdir() if p.is_dir())
        self.assertIn("0.1.0", versions)
        for version in versions:
            with self.subTest(version):
                output = self.copy(version, f"run-{version}")
                result = self.resume(version, output)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("resuming after step 8", result.stderr)
                self.assertTrue(json.loads((output / "run.json").read_text())["finished"])
                self.assertLess(self.distance(version, output), TOLERANCE)
                ours, whole = harness.metrics(output), harness.metrics(OLD_RUNS / version / "whole")
                self.assertEqual(len(ours), len(whole))
                for mine, theirs in zip(ours, whole):
                    self.assertEqual(mine["step"], theirs["step"])
                    for key in ("loss", "val_loss"):
                        if key in theirs:
                            self.assertAlmostEqual(mine[key], theirs[key], delta=1e-4)
                again = self.resume(version, output)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertIn("finished already", again.stderr)

    def test_the_first_versions_checkpoints_have_no_manifest_and_that_is_said(self):
        output = self.copy("0.1.0", "warned")
        result = self.resume("0.1.0", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("has no manifest.json", result.stderr)

    def test_the_tolerance_finds_moments_that_were_lost(self):
        output = self.copy("0.1.0", "zeroed")
        file = output / "checkpoints" / "step_8" / "optimizer.safetensors"
        moments = load_file(file)
        save_file({name: numpy.asarray(value * (name == "updates")) for name, value in moments.items()}, file)
        result = self.resume("0.1.0", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(self.distance("0.1.0", output), 10 * TOLERANCE)

    def test_other_settings_or_another_base_are_refused_as_for_a_run_of_today(self):
        output = self.copy("0.1.0", "changed")
        run = json.loads((output / "run.json").read_text())
        run["identity"]["model"] = run["identity"]["model"][::-1]
        (output / "run.json").write_text(json.dumps(run))
        result = self.resume("0.1.0", output)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("another base checkpoint", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
