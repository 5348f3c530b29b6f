"""scripts/gpu-check goes on after a part that fails or hangs, and says so; on the fake card.

Arguments: the folder of the programs linked to the fake card, that of the driver.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "support" / "gpu_check"), str(ROOT / "tests" / "recipes")]
import check
import harness


class Parts(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.output = pathlib.Path(self.temporary.name)

    def run_parts(self, *parts, minutes=8):
        outcomes = check.run_parts([check.Part(name, ["bash", "-c", script], limit) for name, script, limit in parts],
                                   self.output, minutes)
        return outcomes, check.summary(outcomes, {"device": "cuda:0"})

    def test_the_others_go_on_after_one_that_fails_hangs_or_is_skipped(self):
        left = self.output / "left"
        outcomes, summary = self.run_parts(
            ("fails", "echo 'a | b'; exit 4", 60),
            ("hangs", f"echo begun; (sleep 100; touch {left}) & sleep 100", 0.5),
            ("crashes", "kill -SEGV $$", 60),
            ("skipped-part", f"echo no GPU; exit {check.SKIPPED}", 60),
            ("passes", "echo fine", 60),
            ("names-its-fault", "echo 'FAIL: norm in bf16: NaN'; echo 'FAIL: another'; echo 8 of 10 passed; exit 1", 60),
            ("unfit", "echo 'precision  unfit    no bf16'; echo '0 warning, 1 unfit'; exit 3", 60))
        self.assertEqual([o.result for o in outcomes], ["FAIL", "FAIL", "FAIL", "skipped", "pass", "FAIL", "FAIL"])
        self.assertIn("exit code 1: FAIL: norm in bf16: NaN; 8 of 10 passed |", summary)
        self.assertIn("exit code 3: precision  unfit    no bf16; 0 warning, 1 unfit |", summary)
        self.assertIn("| fails | FAIL | 0 | exit code 4: a \\| b | [fails.log](fails.log) |", summary)
        self.assertIn("not done within 0 s; begun", summary)
        self.assertIn("| passes | pass | 0 | fine |", summary)
        self.assertIn("1 passed, 5 failed, 1 were skipped.", summary)
        self.assertLess(outcomes[1].seconds, 90)
        sleepers = subprocess.run(["pgrep", "-f", str(left)], capture_output=True, text=True, check=False).stdout
        self.assertEqual(sleepers, "")  # what a part has started ends with it

    def test_what_has_no_time_left_is_skipped(self):
        outcomes, summary = self.run_parts(("first", "sleep 100", 60), ("second", "true", 60), minutes=0.01)
        self.assertEqual([o.result for o in outcomes], ["FAIL", "skipped"])
        self.assertIn("no time was left of 0.01 minutes", summary)


class Script(unittest.TestCase):
    def environment(self, **variables):
        return {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": sys.argv[2], **variables}

    def check(self, *arguments):
        return subprocess.run([ROOT / "scripts" / "gpu-check", *map(str, arguments)], env=self.environment(), capture_output=True,
                              text=True, timeout=850, check=False)

    def test_a_packed_build_whose_doctor_is_broken_still_resumes(self):
        with tempfile.TemporaryDirectory() as folder:
            packed, output = pathlib.Path(folder) / "packed", pathlib.Path(folder) / "report"
            packed.mkdir()
            run = packed / "run"
            run.write_text(f'#!/bin/sh\n[ "$1" = lorikeet ] && {{ echo out of order; exit 1; }}\nexec "{sys.argv[1]}/$@"\n')
            run.chmod(0o755)
            done = self.check("--programs", packed, "--output", output, "--only", "gpu-tests,resume,graphs", "--device", "cuda:1",
                              "--minutes", 48)  # a loaded machine takes its time over a made-up card
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            summary = (output / "summary.md").read_text()
            self.assertIn("| gpu-tests | FAIL |", summary)
            self.assertIn("exit code 1: out of order", summary)
            self.assertRegex(summary, r"\| resume \| pass \| \d+ \| stopped after step 3 of 6: the same bytes")
            self.assertRegex(summary, r"\| graphs \| pass \| \d+ \| 7 of 8 micro-steps were launches of one graph")
            self.assertIn("2 passed, 1 failed, 0 were skipped.", summary)
            again = self.check("--programs", packed, "--output", output)
            self.assertEqual(again.returncode, 2)
            self.assertIn("isn't empty", again.stderr)

    def test_a_card_without_bf16_is_tried_in_fp16(self):
        ask = "import common, sys; run = common.Run(sys.argv[1:]); print(run.half_precision(), run.has('tf32'), run.has('fp32'))"
        for capability, settings in (("75", "['precision.preset=fp16'] False True"), ("80", "[] True True")):
            with tempfile.TemporaryDirectory() as folder:
                said = subprocess.run([sys.executable, "-c", ask, sys.argv[1], folder, "cuda:0"], capture_output=True, text=True,
                                      cwd=ROOT / "scripts" / "support" / "gpu_check", check=False,
                                      env=self.environment(FAKE_CARD_CAPABILITY=capability))
            self.assertEqual((said.stdout.splitlines() or [""])[-1], settings, said.stderr)

    def test_what_is_not_there_is_said(self):
        self.assertEqual(self.check("--programs", ROOT / "docs").returncode, 3)
        with tempfile.TemporaryDirectory() as folder:
            done = self.check("--programs", sys.argv[1], "--only", "dance", "--output", folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("no part is called dance; there are doctor, gpu-tests, parity, ", done.stderr)
            done = self.check("--programs", sys.argv[1], "--device", "cuda:77", "--output", folder)
            self.assertEqual(done.returncode, 3)
            self.assertIn("'cuda:77' isn't there", done.stderr)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
