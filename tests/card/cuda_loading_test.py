"""The real programs, told of cards by a made-up driver, load libtorch's CUDA half in time and end in it.

libtorch remembers that it had no CUDA when anything asks before its CUDA half is loaded, and says that it wasn't built
with it. That nothing does shows without a card: the run ends where CUDA's runtime meets the made-up driver.

Arguments: the folder of the real programs, that of the driver.
"""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "recipes"))
import harness


class Loading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.environment = {**harness.ENVIRONMENT, "LD_LIBRARY_PATH": sys.argv[2]}

    def ends_in_the_runtime(self, command):
        done = subprocess.run(list(map(str, command)), env=self.environment, capture_output=True, text=True, timeout=120,
                              check=False)
        if "can't load the CUDA half of libtorch" in done.stderr:
            self.skipTest("a torch wheel without CUDA")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Unexpected error from cudaGetDeviceCount()", done.stderr)

    def test_a_run(self):
        output = self.programs.work / "run"
        self.ends_in_the_runtime(self.programs.command(output, "device=cuda:0"))
        self.assertFalse((output / "adapter_model.safetensors").exists())

    def test_two_ranks(self):
        command = self.programs.command(self.programs.work / "ranks", "device=cuda")
        command[0] = "lora_finetune_distributed"
        self.ends_in_the_runtime([self.programs.folder / "lorikeet", "run", "--nproc", 2, *command])

    def test_the_module_of_graphs(self):
        # What training.cuda_graphs loads, with libtorch's CUDA half behind it: every symbol that it names is there.
        module = self.programs.folder / "liblorikeet_cuda_graph.so"
        load = f"import ctypes; ctypes.CDLL({str(module)!r}, mode=2).lorikeet_make_device_graph"  # RTLD_NOW
        done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_generation(self):
        self.ends_in_the_runtime([self.programs.folder / "lorikeet", "generate", harness.EXAMPLE / "base", "--prompt", "x",
                                  "device=cuda:0"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
