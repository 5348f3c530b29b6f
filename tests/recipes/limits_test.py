"""Values that are not finite are refused by name; ids and lengths are held to the model's own limits."""

import json
import math
import shutil
import struct
import sys
import unittest

import harness

BASE = harness.EXAMPLE / "base"
HELDOUT = harness.EXAMPLE / "heldout.jsonl"
NAN, INFINITY = struct.pack("<f", math.nan), struct.pack("<f", math.inf)


def patch_tensor(path, find, values):
    """Overwrites the beginning of the first tensor whose name holds `find`; returns its name."""
    content = bytearray(path.read_bytes())
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])
    name = sorted(n for n in header if find in n)[0]
    begin = data + header[name]["data_offsets"][0]
    content[begin : begin + len(values)] = values
    path.write_bytes(bytes(content))
    return name


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.adapter = cls.work / "adapter"
        result = cls.programs.train(cls.adapter, "training.max_steps=3")
        assert result.returncode == 0, result.stderr
        cls.rows = cls.work / "few.jsonl"
        cls.rows.write_text("".join(HELDOUT.read_text().splitlines(keepends=True)[:4]))

    def copy(self, folder, name):
        target = self.work / name
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(folder, target)

    def fails(self, result, *says, code=1):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(sum(line.startswith("error: ") for line in result.stderr.splitlines()), 1, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)

    def test_an_adapter_that_is_not_finite_is_refused_everywhere(self):
        for value in (NAN, INFINITY):
            bad = self.copy(self.adapter, "bad")
            name = patch_tensor(bad / "adapter_model.safetensors", "lora_B", value)
            merged = self.work / "merged"
            for verb in (["eval", BASE, "--data", self.rows], ["eval", BASE, "--data", self.rows, "--per-token"],
                         ["generate", BASE, "--prompt", "x"]):
                self.fails(self.programs.verb(*verb, "--adapter", bad), name, "NaN or infinite")
            self.fails(self.programs.verb("merge", BASE, bad, merged), name, "NaN or infinite")
            self.assertFalse(merged.exists())
            output = self.work / "from-bad"
            self.fails(self.programs.train(output, f"lora.init={bad}"), name)
            self.assertFalse(output.exists())

    def test_a_loss_that_is_not_finite_fails_an_evaluation(self):
        base = self.copy(BASE, "overflowing")
        # bf16 ends at 3.4e38: a norm's scale of 3e38 is finite, what it makes of activations isn't.
        patch_tensor(base / "model.safetensors", "model.norm.weight", struct.pack("<H", 0x7F61) * 8)
        for more in ([], ["--per-token"]):
            self.fails(self.programs.verb("eval", base, "--data", self.rows, *more), "[eval] the loss is not finite")

    def test_logits_that_are_not_finite_fail_a_generation_and_a_merge(self):
        base, merged = self.copy(BASE, "damaged"), self.work / "damaged-merged"
        patch_tensor(base / "model.safetensors", "model.norm.weight", struct.pack("<H", 0x7FC0))  # NaN in bf16
        for more in ([], ["--temperature", "1"]):
            self.fails(self.programs.verb("generate", base, "--prompt", "x", *more), "[generate] expected finite logits")
        self.fails(self.programs.verb("merge", base, self.adapter, merged), "logits that are NaN or infinite")
        self.assertFalse(merged.exists())

    def test_a_merge_beyond_the_bases_range_writes_nothing(self):
        large = self.copy(self.adapter, "large")
        for factor in ("lora_A", "lora_B"):
            patch_tensor(large / "adapter_model.safetensors", factor, struct.pack("<f", 3e38))
        merged = self.work / "too-large"
        self.fails(self.programs.verb("merge", BASE, large, merged), "[merge]", "beyond its range")
        self.assertFalse(merged.exists())

    def test_examples_longer_than_the_models_positions_are_warned_of(self):
        result = self.programs.train(self.work / "long", "training.max_steps=3", "data.max_seq_len=600")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("warning: data.max_seq_len is 600, but the model was made for 512 positions", result.stderr)
        base = self.copy(BASE, "scaled")
        config = json.loads((base / "config.json").read_text())
        rope = {"rope_type": "linear", "factor": 2.0}
        if "rope_parameters" in config:
            config["rope_parameters"].update(rope)
        else:
            config["rope_scaling"] = rope
        (base / "config.json").write_text(json.dumps(config))
        run = [f"model.path={base}", "training.max_steps=3"]
        result = self.programs.train(self.work / "scaled-run", *run, "data.max_seq_len=600")
        self.assertNotIn("max_seq_len is", result.stderr)
        result = self.programs.train(self.work / "scaled-run-2", *run, "data.max_seq_len=1025")
        self.assertIn("data.max_seq_len is 1025, but the model was made for 1024 positions", result.stderr)

    def test_an_answer_beyond_the_positions_is_warned_of(self):
        base = self.copy(BASE, "narrow")
        config = json.loads((base / "config.json").read_text())
        config["max_position_embeddings"] = 40  # the prompt has 28 tokens
        (base / "config.json").write_text(json.dumps(config))
        warning = "but the model was made for 40 positions"
        ask = ["generate", base, "--prompt", "Tell", "--max-new-tokens"]
        self.assertIn(warning, self.programs.verb(*ask, "30").stderr)
        self.assertNotIn(warning, self.programs.verb(*ask, "1").stderr)

    def test_ids_may_be_as_large_as_the_models_embedding(self):
        # The same model, with a tokenizer that knows 100 tokens fewer.
        base = self.copy(BASE, "small-tokenizer")
        tokenizer = json.loads((base / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        gone = {token for token, i in vocab.items() if i >= 1180}
        tokenizer["model"]["vocab"] = {token: i for token, i in vocab.items() if token not in gone}
        parts = lambda merge: merge if isinstance(merge, list) else merge.split(" ")
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"]
                                        if not gone & {*parts(m), "".join(parts(m))}]
        (base / "tokenizer.json").write_text(json.dumps(tokenizer))
        rows = self.work / "ids.jsonl"
        rows.write_text('{"input_ids": [5, 6, 7, 1190], "labels": [-100, 6, 7, 1190]}\n'
                        '{"input_ids": [8, 1279, 9, 1180], "labels": [-100, 1279, 9, 1180]}\n' * 4)
        data = [f"model.path={base}", f"data.train.path={rows}", "data.train.format=tokens", "training.max_steps=3"]
        result = self.programs.train(self.work / "ids", *data)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("ids.jsonl has 12 ids beyond the tokenizer's vocabulary (1180)"), 1)
        again = self.programs.train(self.work / "ids-again", *data)  # from the cache
        self.assertIn("ids.jsonl has 12 ids", again.stderr)
        for verb in (["preview", base], ["eval", base, "--per-token"], ["generate", base, "--max-new-tokens", "1"]):
            result = self.programs.verb(*verb, "--data", rows, "data.train.format=tokens")
            self.assertEqual(result.returncode, 0, result.stderr)
        rows.write_text('{"input_ids": [5, 6, 7, 1280]}\n')
        self.fails(self.programs.train(self.work / "none", *data), "line 1 of ids.jsonl", "embedding rows, 1280", code=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
