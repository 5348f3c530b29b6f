"""What the ranks say they sent is what the kernel counts, for every strategy."""

import json
import sys
import unittest

import harness
import network

STEPS = 12


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        try:
            cls.host = network.OneHost()
            cls.host.__enter__()
        except OSError as error:
            raise unittest.SkipTest(str(error)) from error
        cls.addClassCleanup(cls.host.__exit__)

    def run_and_count(self, processes, *overrides):
        """The kernel's count of one run on the loopback, and what its ranks say; in bytes, of all ranks."""
        output = self.programs.work / f"{processes}{'-'.join(overrides)}"
        command = [str(self.programs.folder / "lorikeet"), "run", "--nproc", str(processes), "lora_finetune_distributed",
                   "--config", str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", "lora.rank=64",
                   *(f"distributed.{o}" for o in overrides)]
        before = self.host.sent_bytes()
        result = harness.run(self.host.on(command), 180)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = harness.metrics(output)
        self.assertEqual(len(lines), STEPS)
        return self.host.sent_bytes() - before, processes * sum(line["comm_bytes"] for line in lines), lines

    def test_the_kernel_counts_what_the_ranks_do(self):
        for processes, overrides in ((2, ["strategy=replicate"]), (3, ["strategy=replicate"]), (2, ["strategy=shard"]),
                                     (3, ["strategy=shard"]), (4, ["strategy=hybrid", "shard_degree=2"])):
            with self.subTest(processes=processes, strategy=overrides[0]):
                counted, said, lines = self.run_and_count(processes, *overrides)
                print(f"{processes} ranks, {overrides[0]}: kernel {counted}, ranks {said:.0f}, ratio {counted / said:.4f}",
                      file=sys.stderr)
                # Headers, acknowledgements, and the store at the start.
                self.assertGreater(counted, said)
                self.assertLess(counted, 1.05 * said)
                if processes == 2 and overrides == ["strategy=replicate"]:
                    self.assert_only_the_adapter_moves(lines)

    def assert_only_the_adapter_moves(self, lines):
        run = json.loads((self.programs.work / "2strategy=replicate" / "run.json").read_text())
        report = 56  # seven numbers of each rank
        for line in lines:
            self.assertEqual(line["comm_bytes_by_collective"],
                             {"all-reduce": 4 * run["adapter_parameters"], "all-gather": report})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
