"""`lorikeet topo` shows saved machines and this one, and selects GPUs."""

import json
import os
import re
import subprocess
import sys
import unittest

import harness

FIXTURES = harness.ROOT / "tests" / "data" / "topology"


class Topo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])

    def topo(self, *arguments):
        return self.programs.verb("topo", *arguments)

    def ok(self, *arguments):
        result = self.topo(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_saved_matrix_is_shown_as_matrix_tree_and_best_sets(self):
        shown = self.ok("--from", FIXTURES / "four_3090_two_pix_pairs.txt")
        self.assertRegex(shown, r"GPU1 +PIX +X +NODE +NODE +0-31 +0 +N/A")
        self.assertIn("  PCIe switch (PIX)\n    GPU0 NVIDIA GeForce RTX 3090\n", shown)
        self.assertRegex(shown, r"\n2 +0,2 +12\.\d +the largest all-reduce bandwidth \(estimated")
        self.assertEqual(len(re.findall(r"^\d  ", shown, re.MULTILINE)), 4)

    def test_the_matrix_that_is_shown_reads_back(self):
        fixture = FIXTURES / "nvswitch_8_nics.txt"
        again = self.programs.work / "again.txt"
        again.write_text(self.ok("--from", fixture))
        links = [json.loads(self.ok("--from", f, "--json"))["links"] for f in (fixture, again)]
        self.assertEqual(*links)

    def test_a_matrix_is_read_from_a_pipe(self):
        text = (FIXTURES / "bridged_pairs_0_2.txt").read_text()
        result = self.programs.verb("topo", "--from", "-", "--select", "2", stdin=text)
        self.assertEqual((result.returncode, result.stdout), (0, "0,2\n"), result.stderr)
        result = self.programs.verb("topo", "--from", "-", stdin=text.replace("NODE", "NOOD", 1))
        self.assertEqual(result.returncode, 2)
        self.assertIn("stdin", result.stderr)

    def test_select_prints_what_cuda_visible_devices_takes_and_nothing_else(self):
        result = self.topo("--from", FIXTURES / "bridged_pairs_0_2.txt", "--select", "2")
        self.assertEqual(result.stdout, "0,2\n")
        self.assertIn("of 6 sets", result.stderr)

    def test_json_reads_back_and_measurements_in_it_decide(self):
        fixture = FIXTURES / "four_cards_measured_against_label"
        text = self.ok("--from", fixture.with_suffix(".txt"), "--json")
        machine = json.loads(text)
        self.assertEqual([best["gpus"] for best in machine["best"]][1], [0, 1])
        saved = self.programs.work / "machine.json"
        saved.write_text(text)
        self.assertEqual(self.ok("--from", saved, "--json"), text)

        machine["measured"] = json.loads(fixture.with_suffix(".json").read_text())["measured"]
        saved.write_text(json.dumps(machine))
        best = json.loads(self.ok("--from", saved, "--json", "--select", "2"))["best"]
        self.assertEqual([(b["gpus"], b["source"]) for b in best], [([0, 2], "measured pairs")])

    def test_what_cannot_be_is_refused_in_words(self):
        broken = self.programs.work / "broken.txt"
        broken.write_text((FIXTURES / "phb_only.txt").read_text().replace("PHB", "PBH", 1))
        for code, message, *arguments in (
            (2, "line 2: 'PBH' in column 'GPU1' is no link class", "--from", broken),
            (2, "nothing.txt", "--from", self.programs.work / "nothing.txt"),
            (2, "from 1 to 2, got 3", "--from", FIXTURES / "phb_only.txt", "--select", "3"),
            (2, "from 1 to 8, got 9", "--from", FIXTURES / "nvswitch_8_nics.txt", "--select", "9"),
            (2, "there is none", "--from", FIXTURES / "none.json", "--select", "1"),
            (2, "--select", "--select", "two"),
            (2, "--select", "--select", "0"),
            (2, "--select", "--select", "-1"),
            (2, "--select", "--select", ""),
            (2, "excludes", "--measure", "--from", FIXTURES / "phb_only.txt"),
            (2, "--payload-mib requires --measure", "--payload-mib", "8"),
        ):
            result = self.topo(*arguments)
            self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
            self.assertIn(message, result.stderr)

    def test_no_gpu_is_a_result(self):
        self.assertEqual(self.ok("--from", FIXTURES / "none.json"), "There is no GPU here.\n")

    def test_this_machine_is_shown_whatever_it_has(self):
        shown = self.ok()
        inventory = json.loads(self.ok("--json"))["inventory"]
        if inventory["gpus"]:
            self.assertIn("GPU0", shown)
            self.assertTrue(inventory["gpus"][0]["bus_id"])
        else:
            self.assertTrue(shown.startswith("There is no GPU"), shown)

    def test_measuring_needs_two_gpus(self):
        if len(json.loads(self.ok("--json"))["inventory"]["gpus"]) > 1:
            self.skipTest("this machine has several GPUs")
        result = self.topo("--measure")
        self.assertEqual((result.returncode, result.stdout), (3, ""), result.stderr)
        self.assertIn("expected at least two GPUs to measure between", result.stderr)

    def test_cuda_visible_devices_bounds_the_selection_on_this_machine(self):
        result = subprocess.run(
            [self.programs.folder / "lorikeet", "topo", "--json"], capture_output=True, text=True, timeout=60,
            check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["best"], [])
        self.assertIn("CUDA_VISIBLE_DEVICES: '-1'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
