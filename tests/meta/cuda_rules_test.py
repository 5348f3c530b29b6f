"""The rules about CUDA code find the breach that they are there for, and let what is right pass."""

import tempfile
import unittest
from pathlib import Path

import cuda_rules
from check_tree_test import TreeTest

GUARDED = """at::Tensor f(const at::Tensor& x) {
  const c10::OptionalDeviceGuard guard(x.device());
  launch_f(x.data_ptr(), stream_of(x).native_handle());
}
"""


class Launches(TreeTest):
    def check(self, text, name="lib/ops/a.cu"):
        return cuda_rules.check_launches(self.tree({name: text}))

    def test_a_launch_on_a_named_stream_with_its_error_asked_for_passes(self):
        self.assertEqual(self.check("k<T><<<grid, max(a, b), 0, stream>>>(x);\ncheck(cudaGetLastError());\n"), [])

    def test_a_launch_on_the_default_stream_is_found(self):
        for arguments in ("grid, 256", "grid, 256, 0", "grid, 256, 0, 0", "grid, f(a, b), 0, nullptr"):
            found = self.check(f"int a;\nk<<<{arguments}>>>(x);\ncudaGetLastError();\n")
            self.assert_one(found, "lib/ops/a.cu:2", "default stream")

    def test_a_launch_whose_error_nobody_asks_for_is_found(self):
        text = "cudaGetLastError();\nk<<<grid, 256, 0, stream>>>(x);  // cudaGetLastError\n"
        self.assert_one(self.check(text), "lib/ops/a.cu:2", "without cudaGetLastError")

    def test_a_stream_taken_behind_a_guard_passes(self):
        self.assertEqual(self.check(GUARDED, "lib/ops/a.cpp"), [])
        self.assertEqual(self.check(GUARDED.replace("c10::Optional", "at::cuda::CUDA"), "lib/ops/a.cpp"), [])

    def test_a_stream_taken_without_a_guard_is_found(self):
        unguarded = GUARDED.replace("  const c10::OptionalDeviceGuard guard(x.device());\n", "")
        self.assert_one(self.check(unguarded, "lib/ops/a.cpp"), "lib/ops/a.cpp:2", "without a device guard")
        # The guard of the function before it counts for nothing.
        self.assert_one(self.check(GUARDED + unguarded, "lib/ops/a.cpp"), "lib/ops/a.cpp:6", "without a device guard")


class Waits(TreeTest):
    def check(self, text, allowed=None, name="lib/train/a.cpp"):
        return cuda_rules.check_waits(self.tree({name: text}), allowed or {})

    def test_each_call_that_waits_is_found(self):
        for call in ("x.item<float>()", "x.item()", "x.cpu()", "x.nonzero()", "at::nonzero(x)", "at::equal(x, y)",
                     "x.to(at::kCPU)", "x.masked_select(y)", "at::unique_dim(x, 0)", "event.synchronize()",
                     "event->synchronize()"):
            self.assert_one(self.check(f"int a;\nf({call});\n"), "lib/train/a.cpp:2", "waits for a GPU")

    def test_blocking_calls_of_cuda_are_found(self):
        for call in ("cudaMalloc(&p, 1)", "cudaDeviceSynchronize()", "cudaMemcpy(a, b, 1, kind)"):
            self.assert_one(self.check(f"{call};\n", name="lib/ops/a.cu"), "lib/ops/a.cu:1", "blocks")
        self.assertEqual(self.check("cudaMemcpyAsync(a, b, 1, kind, stream);\n"), [])

    def test_what_is_allowed_passes_and_one_more_is_found(self):
        allowed = {("lib/train/a.cpp", ".cpu()"): (1, "a reason")}
        self.assertEqual(self.check("x.cpu();\n", allowed), [])
        self.assert_one(self.check("x.cpu();\ny.cpu();\n", allowed), "lib/train/a.cpp:2", "2 in this file", "allows 1")

    def test_an_entry_that_allows_too_much_is_found(self):
        self.assert_one(
            self.check("x.sum();  // not .cpu()\n", {("lib/train/a.cpp", ".cpu()"): (1, "a reason")}),
            "cuda_waits.txt", "allows 1 of .cpu() in lib/train/a.cpp, which has 0",
        )

    def test_probes_may_wait_and_tests_are_not_held(self):
        self.assertEqual(self.check("x.cpu();\n", name="lib/probe/a.cpp"), [])
        self.assertEqual(self.check("x.cpu();\n", name="tests/train/a_test.cpp"), [])

    def test_a_list_that_is_no_list_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "waits.txt"
            path.write_text("# comment\n\nlib/a.cpp | .cpu() | 2 | a reason\n", encoding="utf-8")
            self.assertEqual(cuda_rules.read_allowed_waits(path), {("lib/a.cpp", ".cpu()"): (2, "a reason")})
            for wrong in ("lib/a.cpp | .cpu() | 2", "lib/a.cpp | .cpu() | two | a reason", "lib/a.cpp | .cpu() | 2 | "):
                path.write_text(wrong, encoding="utf-8")
                with self.assertRaisesRegex(ValueError, "expected 'file"):
                    cuda_rules.read_allowed_waits(path)


if __name__ == "__main__":
    unittest.main()
