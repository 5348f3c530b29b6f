"""A converted config runs through validate; what can't be converted is an error and prints no config."""

import os
import sys
import unittest

import harness

RECIPE = """
model: {{ _component_: torchtune.models.llama3_2.lora_llama3_2_1b, lora_attn_modules: [q_proj, output_proj], lora_rank: 4 }}
tokenizer: {{ _component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 256 }}
checkpointer: {{ _component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: {base} }}
dataset: {{ _component_: torchtune.datasets.{dataset}, source: json, data_files: {rows} }}
optimizer: {{ _component_: torch.optim.AdamW, lr: 2e-4 }}
output_dir: {work}/run
batch_size: 2
gradient_accumulation_steps: 4
dtype: fp32
device: cpu
"""


class ConvertConfig(unittest.TestCase):
    def setUp(self):
        self.programs = harness.Programs(os.path.abspath(sys.argv[1]))
        self.recipe = self.programs.work / "recipe.yaml"

    def convert(self, dataset, *arguments):
        self.recipe.write_text(RECIPE.format(base=harness.EXAMPLE / "base", rows=harness.EXAMPLE / "train.jsonl",
                                             work=self.programs.work, dataset=dataset))
        return self.programs.verb("convert-config", self.recipe, *arguments)

    def test_the_result_is_a_valid_config_on_stdout_and_what_differs_on_stderr(self):
        result = self.convert("alpaca_dataset", "--devices", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("differs: torchtune writes rows as 'Below is an instruction", result.stderr)
        self.assertIn("  global: 16  # batch_size x", result.stdout)
        own = self.programs.work / "own.yaml"
        own.write_text(result.stdout)
        valid = self.programs.verb("validate", own)
        self.assertEqual((valid.returncode, valid.stdout), (0, "valid\n"), valid.stderr)

    def test_what_would_change_the_result_is_an_error_and_nothing_is_printed(self):
        result = self.convert("grammar_dataset")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn(f"{self.recipe}:5: dataset._component_ is 'grammar_dataset'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
