"""Adapters whose gradients are zero by the numbers are named in a warning, and the run goes on."""

import json
import shutil
import struct
import sys
import unittest

import harness

SHORT = ("training.max_steps=4", "checkpoint.save_every_steps=null")
WARNING = "warning: step 1: the gradients of "


class ZeroGradients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work

    @classmethod
    def tearDownClass(cls):
        cls.programs.temporary.cleanup()

    def train(self, name, *overrides):
        result = self.programs.train(self.work / name, *SHORT, *overrides)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.work / name / "adapter_model.safetensors").exists())
        return result.stderr

    def test_rows_of_two_tokens_train_all_but_queries_and_keys(self):
        rows = self.work / "pairs.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": [i, i + 1], "labels": [i, i + 1]}) + "\n" for i in range(5, 40)))
        # Exactly zero or a rounding error, as products round on this machine.
        said = self.train("pairs", f"data.train.path={rows}", "data.train.format=tokens", "batch.global=1")
        named = "".join(line for line in said.splitlines() if line.startswith(WARNING))
        self.assertNotIn("v_proj", named)

    def test_zero_weights_in_the_base_and_a_tiny_alpha(self):
        base = self.work / "base"
        shutil.copytree(harness.EXAMPLE / "base", base)
        zero_matrix(base / "model.safetensors", "model.layers.0.self_attn.o_proj.weight")
        said = self.train("zeros", f"model.path={base}", "lora.target_modules=[v_proj]")
        self.assertIn(WARNING + "1 adapter tensor are exactly zero", said)
        self.assertIn("layers.0.self_attn.v_proj.lora_B", said)
        self.assertIn(WARNING, self.train("tiny", "lora.alpha=1e-60"))

    def test_other_runs_are_not_warned(self):
        self.assertNotIn("exactly zero", self.train("usual"))


def zero_matrix(path, name):
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    data[8 + size + begin : 8 + size + end] = bytes(end - begin)
    path.write_bytes(data)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
