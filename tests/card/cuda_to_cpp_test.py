"""Kernels are turned into C++ that runs them on the host, and those that can't be run so are refused."""

import pathlib
import tempfile
import unittest

import cuda_to_cpp


class Convert(unittest.TestCase):
    def test_a_launch_becomes_a_call_on_its_own_line(self):
        text = "__global__ void k(int* x);\nvoid f() {\n  k<T><<<grid, 256, 0,\n      stream>>>(x);\n}\n"
        converted = cuda_to_cpp.convert(text, "a.cu")
        self.assertIn('lorikeet::card::launcher<lorikeet::card::Threads::kAlone>("a.cu", k<T>, grid, 256, 0,\n      stream)(x);',
                      converted)
        self.assertTrue(converted.startswith('#include "card/host_kernel.h"\n#line 1 "a.cu"\n'))
        self.assertEqual(converted.count("\n"), text.count("\n") + 2)

    def test_threads_that_work_together_become_fibers(self):
        for used in ("__shared__ int x[32];", "__syncthreads();", "__syncwarp();", "__shfl_xor_sync(m, v, 1);",
                     "__shfl_down_sync(m, v, 1);", "__shfl_sync(m, v, 1);"):
            self.assertIn("launcher<lorikeet::card::Threads::kTogether>(",
                          cuda_to_cpp.convert(f"{used}\nk<<<1, 32>>>();\n", "a.cu"))

    def test_shared_variables_become_references(self):
        for declared, type_name in (("float x[32]", "float[32]"), ("Pair<int, 4> x[kRows][8]", "Pair<int, 4>[kRows][8]"),
                                    ("double x", "double")):
            self.assertIn(f"auto& x = lorikeet::card::shared_variable<{type_name}>([] {{}});",
                          cuda_to_cpp.convert(f"__shared__ {declared};\nk<<<1, 32>>>();\n", "a.cu"))

    def test_other_cooperation_is_refused_with_its_line(self):
        for used in ("extern __shared__ int x[];", "__shfl_up_sync(m, v, 1);", "atomicAdd(p, 1);",
                     "__ballot_sync(m, p);", "__syncthreads_or(p);", 'asm("...");'):
            with self.assertRaisesRegex(cuda_to_cpp.Unsupported, "a.cu:2: .*expected shared variables of a known size"):
                cuda_to_cpp.convert(f"k<<<1, 32>>>();\n{used}\n", "a.cu")

    def test_a_source_without_a_launch_is_refused(self):
        with self.assertRaisesRegex(cuda_to_cpp.Unsupported, "expected a launch"):
            cuda_to_cpp.convert("int a;\n", "a.cu")

    def test_the_program_writes_its_output_or_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            source, output = pathlib.Path(folder) / "a.cu", pathlib.Path(folder) / "a.cpp"
            source.write_text("k<<<1, 2, 0, s>>>(x);", encoding="utf-8")
            self.assertEqual(cuda_to_cpp.main([str(source), str(output)]), 0)
            self.assertIn("launcher<", output.read_text(encoding="utf-8"))
            source.write_text("atomicAdd(p, 1);", encoding="utf-8")
            self.assertEqual(cuda_to_cpp.main([str(source), str(output)]), 1)
            self.assertEqual(cuda_to_cpp.main([]), 2)


if __name__ == "__main__":
    unittest.main()
