"""`lorikeet merge` of an adapter on the head alone, where base and head share a table: each end gets its own, under the
name that transformers' files of that layout have."""

import json
import shutil
import sys
import unittest

import harness

GOLDENS = harness.ROOT / "tests/parity/goldens/families"
VOCABULARY = 48  # of all goldens
OTHER_FILES = ("merges.txt", "SYSTEM_PROMPT.txt", "tokenizer.model.v3", "qwen.tiktoken", "LICENSE")
TOKENIZER = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}


class Merge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])

    def merged(self, name, golden, rename, change):
        """The golden checkpoint, with its tensors as {new name: tensor of the old} and its config.json changed, merged with
        an adapter on the head; returns the merged config.json and the names of its tensors."""
        base, adapter, output = (self.programs.work / f"{name} {what}" for what in ("base", "adapter", "merged"))
        shutil.copytree(GOLDENS / golden, base)
        config = json.loads((base / "config.json").read_text())
        change(config)
        (base / "config.json").write_text(json.dumps(config))
        (base / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        for file in OTHER_FILES:
            (base / file).write_text(file)
        (base / "pytorch_model.bin").write_text("weights in another form")
        tensors = {rename(key): tensor for key, tensor in harness.read_tensors(base / "model.safetensors").items()}
        tensors.pop(None, None)
        harness.write_tensors(base / "model.safetensors", tensors)
        hidden = config.get("text_config", config)["hidden_size"]
        harness.write_adapter(adapter, {"lm_head": (harness.matrix(1, hidden, lambda i, j: 1 + j % 3),
                                                    harness.matrix(VOCABULARY, 1, lambda i, j: i % 5 - 2))})
        result = self.programs.verb("merge", base, adapter, output, "device=cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        for file in OTHER_FILES:
            self.assertEqual((output / file).read_text(), file)
        self.assertFalse((output / "pytorch_model.bin").exists())
        report = json.loads(result.stdout)
        self.assertGreater(report["largest_adapter_effect"], 20 * report["largest_logit_change"])
        return json.loads((output / "config.json").read_text()), set(harness.read_tensors(output / "model.safetensors"))

    def test_a_multimodal_gemma_3s_head_is_parted_at_both_levels_of_its_config(self):
        def absent(config):
            config.pop("tie_word_embeddings", None)
            config["text_config"].pop("tie_word_embeddings", None)

        def newer(name):
            return name.replace("language_model.model.", "model.language_model.").replace("vision_tower.", "model.vision_tower.")

        for layout, rename, head, other in (("published", str, "language_model.lm_head.weight", "lm_head.weight"),
                                            ("newer", newer, "lm_head.weight", "language_model.lm_head.weight")):
            with self.subTest(layout):
                config, tensors = self.merged(layout, "gemma3/nested", rename, absent)
                self.assertIs(config["tie_word_embeddings"], False)
                self.assertIs(config["text_config"]["tie_word_embeddings"], False)
                self.assertIn(head, tensors)
                self.assertNotIn(other, tensors)

    def test_a_tied_gpt_neoxs_head_is_called_embed_out(self):
        def without_head(name):
            return None if name.startswith("embed_out") else name

        config, tensors = self.merged("tied neox", "gpt_neox/parallel", without_head,
                                      lambda config: config.update(tie_word_embeddings=True))
        self.assertIs(config["tie_word_embeddings"], False)
        self.assertIn("embed_out.weight", tensors)
        self.assertNotIn("lm_head.weight", tensors)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
