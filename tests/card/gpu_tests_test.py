"""`lorikeet doctor --gpu-tests` on the made-up card: every operator in each precision, by every file of kernels.

Beside the arguments of card_programs.py a file: the operators that were called on the card are written to it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from card_programs import SECOND, CardPrograms, called_operators, harness


class GpuTests(CardPrograms):
    """`lorikeet doctor --gpu-tests`, and one of its processes."""

    NOT_LAUNCHED = {}  # file of kernels: why no case launches them; none at present

    def doctor(self, *arguments, **variables):
        """Exit code, what was printed, and the reports of the operators' processes."""
        reports = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        environment = {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": self.driver,
                       "FAKE_CARD_REPORTS": str(reports), **variables}
        result = subprocess.run([str(self.card_folder / "lorikeet"), *arguments], env=environment, capture_output=True,
                                text=True, timeout=300, check=False)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        return result.returncode, result.stdout, [json.loads(file.read_text()) for file in reports.iterdir()]

    def probe(self, op, **variables):
        request = {"probe": "operator", "device": 1, "peers": [], "compute": "F32", "tf32": False, "bytes": 4, "rank": 0,
                   "size": 1, "port": 0, "listen_fd": -1, "limit_seconds": 60, "folder": "", "op": op}
        code, output, _ = self.doctor("probe", json.dumps(request), **variables)
        self.assertEqual(code, 0)
        return json.loads(output)

    def test_each_operator_is_tested_in_each_precision_and_one_that_computes_wrong_is_found(self):
        code, output, reports = self.doctor("doctor", "--gpu-tests", "--json", f"device={SECOND}",
                                            FAKE_CARD_WRONG_OPERATOR="aten::sqrt")
        self.assertEqual(code, 1)
        tests = json.loads(output)["tests"]
        operators = {test["operator"] for test in tests}
        self.assertGreater(len(operators), 8)
        precisions = ("fp32", "tf32", "bf16", "fp16")
        self.assertEqual(sorted((test["operator"], test["precision"]) for test in tests),
                         sorted((op, precision) for op in operators for precision in precisions))
        for test in tests:
            self.assertTrue(test["device"].startswith("cuda:1 (NVIDIA H100"))
            self.assertGreater(test["results"], 0)
            self.assertEqual(bool(test["wrong"]), test["operator"] == "DoRA's norms", test)
            self.assertEqual(test["error"] > test["tolerance"], bool(test["wrong"]), test)
        used = [report for report in reports if report["operators"]]
        self.assertEqual(len(used), len(operators))
        for report in used:
            called_operators.update(report["operators"])
            self.assertEqual(report["hazards"], {})
        kernels = {file.name for file in (harness.ROOT / "lib" / "ops").glob("*/*.cu")}
        launched = {file for report in used for file in report["kernels"]}
        self.assertEqual(kernels - launched, set(self.NOT_LAUNCHED), "kernels that no case launches")

    def test_that_operator_passes_where_it_computes_right(self):
        self.assertEqual(self.probe("DoRA's norms")["wrong"], [])

    def test_a_product_that_computes_wrong_is_found_in_16_bits_too(self):
        self.assertIn("bf16: ", " ".join(self.probe("matrix product", FAKE_CARD_WRONG_OPERATOR="aten::mm")["wrong"]))

    def test_a_card_before_ampere_is_tested_in_what_it_has(self):
        figures = self.probe("matrix product", FAKE_CARD_CAPABILITY="75")["figures"]
        self.assertEqual({name.split(".")[0] for name in figures}, {"fp32", "fp16"})


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2, exit=False).result
    pathlib.Path(sys.argv[4]).write_text("".join(f"{name}\n" for name in sorted(called_operators)))
    sys.exit(not result.wasSuccessful())
