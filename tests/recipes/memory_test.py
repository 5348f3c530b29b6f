"""A step's peak memory is what the plan of docs/memory.md says, however many lengths rows have had, loading takes little
more than the weights, and what can't fit is refused before it is allocated."""

import pathlib
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "benchmarks" / "memory"))
import run as measure  # noqa: E402

# Large enough that a tenth is more than what the process itself may need or not.
SIZES = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
             vocab_size=16000)
TOKENS = 3072
# Small, so that what is kept of products would stand out.
SMALL = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=2000)


def available_bytes():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.temporary.name)
        measure.make_model(cls.work / "model", SIZES)
        cls.program = program = pathlib.Path(sys.argv[1]) / "lora_finetune_single_device"
        cls.plain, cls.checkpointed = (
            measure.run(program, cls.work / "model", cls.work, TOKENS, overrides)
            for overrides in ([], ["training.activation_checkpointing=full"]))

    def test_the_plan_gives_a_steps_peak(self):
        for found in (self.plain, self.checkpointed):
            self.assertLess(found["step"], 1.1 * found["expected"], found)
            # Rows of one length leave much of the product caches empty, how much depends on the kind of CPU.
            filled = found["expected"] - found["parts"]["product_caches"]
            self.assertGreater(found["step"], filled / 1.1, found)
        # The comparison can tell the two apart.
        self.assertGreater(self.plain["step"], 1.3 * self.checkpointed["expected"])

    def test_the_plan_gives_the_peak_however_memory_is_saved(self):
        for grade, offload in (("mlp", "none"), ("none", "activations"), ("full", "both")):
            found = measure.run(self.program, self.work / "model", self.work, TOKENS,
                                [f"training.activation_checkpointing={grade}", f"training.offload={offload}"])
            with self.subTest(grade=grade, offload=offload):
                self.assertLess(found["step"], 1.06 * found["expected"], found)
                self.assertGreater(found["step"], (found["expected"] - found["parts"]["product_caches"]) / 1.1, found)

    def test_loading_takes_little_more_than_weights_and_adapter(self):
        # The run before has measured this model's products, which sets up libraries that training needs anyway.
        found = self.checkpointed
        self.assertLess(found["loaded"], 1.05 * found["weights"] + found["parts"]["adapter"] + (40 << 20), found)

    def test_ever_new_row_lengths_stay_within_the_plan(self):
        work = self.work / "lengths"
        work.mkdir()
        measure.make_model(work / "model", SMALL)
        for overrides in ([], ["data.packing=false"]):
            found = measure.run(self.program, work / "model", work, 800, overrides, lengths=(16, 400), steps=60)
            self.assertLess(found["step"], 1.1 * found["expected"], found)

    def test_a_rank_that_cannot_fit_is_refused_with_numbers(self):
        if available_bytes() > 60 << 30:
            self.skipTest("this machine could hold the adapter")
        config = self.work / "config.yaml"
        result = harness.run([str(self.program), "--config", str(config), f"checkpoint.output_dir={self.work / 'refused'}",
                              "lora.rank=65536", "lora.alpha=16"], timeout=60)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr, r"\[memory\] weights \(.*\), adapter \(.* GiB\) and optimizer \(.* GiB\) need .* GiB, "
                                        r"a device has .* free; these would fit.*\n  lora\.rank=\d+ ")
        self.assertIn("warning: lora.rank=65536 is more than the rows or columns of 42 of 42 modules", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
