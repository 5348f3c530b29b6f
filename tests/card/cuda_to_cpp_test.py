"""Kernels are turned into C++ that runs them on the host, and those that can't be run so are refused."""

import pathlib
import tempfile
import unittest

import cuda_to_cpp


class Convert(unittest.TestCase):
    def test_a_launch_becomes_a_call_on_its_own_line(self):
        text = "__global__ void k(int* x);\nvoid f() {\n  k<T><<<grid, 256, 0,\n      stream>>>(x);\n}\n"
        converted = cuda_to_cpp.convert(text, "a.cu")
        self.assertIn('lorikeet::card::launcher("a.cu", k<T>, grid, 256, 0,\n      stream)(x);', converted)
        self.assertTrue(converted.startswith('#include "card/host_kernel.h"\n#line 1 "a.cu"\n'))
        self.assertEqual(converted.count("\n"), text.count("\n") + 2)

    def test_kernels_whose_threads_work_together_are_refused_with_their_line(self):
        for used in ("__shared__ int x[32];", "__syncthreads();", "__shfl_xor_sync(m, v, 1);", "atomicAdd(p, 1);",
                     "__ballot_sync(m, p);", 'asm("...");'):
            with self.assertRaisesRegex(cuda_to_cpp.Unsupported, "a.cu:2: .*expected a kernel whose threads share nothing"):
                cuda_to_cpp.convert(f"k<<<1, 32>>>();\n{used}\n", "a.cu")

    def test_a_source_without_a_launch_is_refused(self):
        with self.assertRaisesRegex(cuda_to_cpp.Unsupported, "expected a launch"):
            cuda_to_cpp.convert("int a;\n", "a.cu")

    def test_the_program_writes_its_output_or_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            source, output = pathlib.Path(folder) / "a.cu", pathlib.Path(folder) / "a.cpp"
            source.write_text("k<<<1, 2, 0, s>>>(x);", encoding="utf-8")
            self.assertEqual(cuda_to_cpp.main([str(source), str(output)]), 0)
            self.assertIn("launcher(", output.read_text(encoding="utf-8"))
            source.write_text("__shared__ int x;", encoding="utf-8")
            self.assertEqual(cuda_to_cpp.main([str(source), str(output)]), 1)
            self.assertEqual(cuda_to_cpp.main([]), 2)


if __name__ == "__main__":
    unittest.main()
