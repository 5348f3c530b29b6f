"""No kernel spills registers, as the compiler says without a GPU, and one that does is found."""

import concurrent.futures
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "support"))
import kernel_facts

# A launch bound of 1,024 threads leaves 64 registers; the sums need 128 at once.
SPILLING = """
#include <cuda_runtime.h>
namespace {
__global__ void __launch_bounds__(1024) sums_kernel(const float4* in, float* out) {
  float sums[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0;
  for (int row = 0; row < 1000; ++row) {
    const float4 x = in[row * 1024 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 128; ++i) sums[i] = sums[i] * x.x + x.y * static_cast<float>(i);
  }
#pragma unroll
  for (int i = 0; i < 128; ++i) out[i * 1024 + threadIdx.x] = sums[i];
}
__global__ void copy_kernel(const float4* in, float4* out) {
  __shared__ float4 tile[256];
  tile[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}
}
void launch(const float4* in, float4* out, cudaStream_t stream) {
  sums_kernel<<<1, 1024, 0, stream>>>(in, reinterpret_cast<float*>(out));
  copy_kernel<<<1, 256, 0, stream>>>(in, out);
}
"""


class KernelFacts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.nvcc = kernel_facts.find_nvcc()
        except kernel_facts.CompilerMissing as missing:
            raise unittest.SkipTest(f"skipped: {missing}") from missing

    def test_no_kernel_of_the_project_spills(self):
        jobs = [(file, arch) for file in kernel_facts.project_files() for arch in kernel_facts.SHARED_BYTES]
        self.assertGreaterEqual(len(jobs), 4)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda job: kernel_facts.kernels_of(*job, self.nvcc), jobs))
        for (file, arch), kernels in zip(jobs, found, strict=True):
            self.assertTrue(kernels, f"{file} for {arch} has no kernel")
            self.assertEqual(kernel_facts.spilling(kernels), [])
            for kernel in kernels:
                self.assertGreater(kernel.registers, 0)
                self.assertTrue(kernel.loads, kernel)
                self.assertGreater(kernel.occupancy, 0)

    def test_a_kernel_that_spills_is_found_beside_one_that_does_not(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "spilling.cu"
            file.write_text(SPILLING)
            kernels = {kernel.name: kernel for kernel in kernel_facts.kernels_of(file, "sm_90", self.nvcc)}
        self.assertEqual(set(kernels), {"sums_kernel", "copy_kernel"})
        (sentence,) = kernel_facts.spilling(kernels.values())
        self.assertRegex(sentence, r"spilling.cu: sums_kernel for sm_90 spills \d+ bytes")
        self.assertEqual(kernels["sums_kernel"].threads, 1024)
        copy = kernels["copy_kernel"]
        self.assertEqual((copy.loads, copy.stores, copy.shared_bytes), ({16: 1}, {16: 1}, 4096))
        self.assertIn("| 4096 | 0 | 1 of 16 | 1 of 16 | 256 | 100% |", kernel_facts.table([copy], "nvcc"))


class Occupancy(unittest.TestCase):
    def test_registers_and_shared_memory_limit_it(self):
        # By NVIDIA's own cuda_occupancy.h.
        for (arch, registers, shared, threads), expected in {
            ("sm_80", 32, 0, 256): 1.0,
            ("sm_80", 33, 0, 256): 0.75,
            ("sm_80", 255, 0, 256): 0.125,
            ("sm_90", 64, 0, 128): 0.5,
            ("sm_80", 32, 49152, 256): 0.375,
            ("sm_90", 32, 49152, 256): 0.5,
        }.items():
            self.assertEqual(kernel_facts.occupancy(arch, registers, shared, threads), expected)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
