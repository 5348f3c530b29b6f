"""gpt-oss with its experts in mxfp4, as published: likelihoods and ten AdamW steps are those of transformers and PEFT, which
decode the experts to numbers on a CPU; the numbers are the same to the bit, so that limits are those of numbers."""

import json

import live_test  # first: it skips where torch or PEFT is missing
import families
import mxfp4
import reference
import tiny_llama
import torch
import training_parity
from safetensors.torch import load_file

NLL_LIMIT = 1e-5
MERGED_LIMIT = 1e-5
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


class Mxfp4Parity(training_parity.Runs):
    def make_base(self, dtype=torch.bfloat16):
        """(as published, with its experts as numbers before they were quantised, an adapter)"""
        numbers = families.make_checkpoint(self.root / "numbers", "gpt_oss", "windows", dtype, seed=1, vocab_size=320)
        tiny_llama.write_tokenizer(numbers)
        base = mxfp4.quantized_copy(numbers, self.root / "base")
        init = reference.make_adapter(numbers, self.root / "init", targets=ATTENTION)
        return base, numbers, init

    def likelihoods(self, base, adapter=None):
        return self.programs.token_nll(base, self.data, adapter)[0]

    def test_likelihoods_are_transformers_own(self):
        base, numbers, init = self.make_base()
        theirs = reference.token_nll(reference.with_adapter(base, init), self.rows)
        ours = self.likelihoods(base, init)
        self.below(reference.deviation(ours, theirs), NLL_LIMIT, "likelihoods")
        self.beyond(reference.deviation(self.likelihoods(numbers, init), theirs), 2 * NLL_LIMIT, "experts as they were")
        self.beyond(reference.deviation(self.likelihoods(base), theirs), 2 * NLL_LIMIT, "without the adapter")
        read_back = mxfp4.dequantized_copy(numbers, self.root / "read back")
        self.assertEqual(self.likelihoods(read_back, init), ours)

    def test_ten_steps_equal_pefts(self):
        base, numbers, init = self.make_base()
        ours = self.ours(base, init, name="ours")
        theirs = self.theirs(base, init, "theirs")
        self.assert_same_run(ours, theirs, init, "experts in mxfp4", names=("ours", "theirs"))
        wrong = self.theirs(numbers, init, "wrong")
        for quantity, deviation, limit in self.deviations(ours, wrong, init, names=("ours", "wrong")):
            self.beyond(deviation, 2 * limit, f"experts as they were, {quantity}")

    def test_a_merge_leaves_the_experts_as_they_are(self):
        base, _, init = self.make_base(torch.float32)
        merged = self.programs.merge(base, init, self.root / "merged")
        before, after = (load_file(folder / "model.safetensors") for folder in (base, merged))
        self.assertEqual(before.keys(), after.keys())
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        self.assertEqual({name.rsplit(".", 2)[1] for name in changed}, set(ATTENTION))
        settings = [json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (base, merged)]
        self.assertEqual(*settings)
        theirs = reference.token_nll(reference.load(merged), self.rows)
        self.below(reference.deviation(self.likelihoods(base, init), theirs), MERGED_LIMIT, "merged, in transformers")


if __name__ == "__main__":
    live_test.main()
