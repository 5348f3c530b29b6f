"""Each operator that the runs on the fake card have called has a kernel for CUDA.

Arguments: the program cuda_operators, the path of libtorch_cuda, the lists of operators that runs_test.py,
experts_runs_test.py, delta_net_runs_test.py and gpu_tests_test.py wrote.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77


class Operators(unittest.TestCase):
    def check(self, names, library=None):
        """Exit code and output of the check over these operators."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("".join(f"{name}\n" for name in names))
            file.flush()
            command = [sys.argv[1], library or sys.argv[2], file.name]
            result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if result.returncode == SKIPPED and library is None:
            self.skipTest(result.stdout.strip())
        return result.returncode, result.stdout

    def test_each_called_operator_has_a_kernel_for_cuda(self):
        names = sorted({name for file in sys.argv[3:] for name in pathlib.Path(file).read_text().split()})
        for expected in ("aten::mm.out", "aten::copy_", "aten::_flash_attention_backward", "aten::_efficient_attention_backward", "aten::topk.values"):
            self.assertIn(expected, names)
        code, said = self.check(names)
        self.assertEqual(code, 0, said)
        self.assertIn(f"{len(names)} operators, 0 without", said)

    def test_an_operator_without_a_kernel_and_one_that_is_none_are_found(self):
        code, said = self.check(["aten::mm", "aten::mkldnn_max_pool2d", "aten::no_such_operator"])
        self.assertEqual(code, 1)
        self.assertIn("aten::mkldnn_max_pool2d: no kernel for CUDA", said)
        self.assertIn("aten::no_such_operator: no such operator", said)
        self.assertIn("3 operators, 2 without", said)

    def test_an_empty_list_fails(self):
        self.assertEqual(self.check([])[0], 1)

    def test_a_library_that_cannot_be_loaded_skips_with_a_message(self):
        code, said = self.check(["aten::mm"], library="/nowhere/libtorch_cuda.so")
        self.assertEqual(code, SKIPPED)
        self.assertIn("skipped: /nowhere/libtorch_cuda.so", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
