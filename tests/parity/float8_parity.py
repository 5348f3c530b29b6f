"""A base in fp8: likelihoods and ten AdamW steps equal PEFT's on the numbers that torch reads back."""

import json

import live_test  # first: it skips where torch or PEFT is missing
import float8
import reference
import tiny_llama
import torch
import training_parity
from training_parity import LOSS_LIMIT, NORM_LIMIT, UPDATE_LIMIT

NLL_LIMIT = 1e-6  # fp32 on both sides: only the order of sums differs
MERGED_LIMIT = 1e-5  # fp32: the sum is rounded once, and multiplied in another order than its terms


class Float8Parity(training_parity.Runs):
    def setUp(self):
        super().setUp()
        self.base = tiny_llama.make_checkpoint(self.root / "base")
        self.init = reference.make_adapter(self.base, self.root / "init")

    def test_ten_steps_on_a_base_brought_to_fp8_while_it_is_loaded(self):
        read_back = float8.dequantized_copy(self.base, self.root / "read-back")
        ours = self.ours(self.base, self.init, "precision.base_storage=fp8")
        self.assert_same_run(ours, self.theirs(read_back, self.init), self.init, "fp8, ten steps")
        # The limits see other scales, another format, and a base that isn't quantised.
        wrong = {"one scale for all": float8.dequantized_copy(self.base, self.root / "wrong-scale", float8.MATRIX),
                 "e5m2": float8.dequantized_copy(self.base, self.root / "wrong-format", dtype=torch.float8_e5m2),
                 "nothing": self.base}
        for what, folder in wrong.items():
            theirs = self.theirs(folder, self.init)
            self.beyond(max(abs(a[0] / b[0] - 1) for a, b in zip(ours, theirs, strict=True)), 2 * LOSS_LIMIT, f"{what}, loss")

    def test_checkpoints_in_fp8_are_trained_on_as_they_are(self):
        for kind in float8.KINDS:
            quantised = float8.quantized_copy(self.base, self.root / f"quantised-{kind}", kind)
            read_back = float8.read_back_copy(self.base, self.root / f"read-back-{kind}", kind)
            found, _ = self.programs.token_nll(quantised, self.data, self.init)
            expected = reference.token_nll(reference.with_adapter(read_back, self.init), self.rows)
            self.below(reference.deviation(found, expected), NLL_LIMIT, f"{kind}, likelihoods")
            if kind != "blocks":
                continue
            ours = self.ours(quantised, self.init, name="ours-blocks")
            theirs = self.theirs(read_back, self.init, name="theirs-blocks")
            self.below(max(abs(a[0] / b[0] - 1) for a, b in zip(ours, theirs, strict=True)), LOSS_LIMIT, "blocks, loss")
            self.below(max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs, strict=True)), NORM_LIMIT, "blocks, norm")
            self.below(reference.update_deviation(self.init, self.root / "ours-blocks", self.root / "theirs-blocks"), UPDATE_LIMIT,
                       "blocks, update")

    def test_modules_that_a_checkpoint_leaves_as_numbers(self):
        kept = ["model.layers.0.mlp.up_proj", "model.layers.1.self_attn.o_proj"]
        said = {"blocks": kept, "matrix": ["layers.0.mlp.up_proj", "model.layers.1.self_attn.o_proj"],
                "rows": ["re:.*0\\.mlp\\.up_proj", kept[1]]}
        for kind, names in said.items():
            mixed = float8.quantized_copy(self.base, self.root / f"mixed-{kind}", kind, kept, names)
            self.assertEqual(float8.dtypes(mixed), {torch.float8_e4m3fn, torch.float32})
            found, _ = self.programs.token_nll(mixed, self.data, self.init)
            read_back = float8.read_back_copy(self.base, self.root / f"read-back-{kind}", kind, kept)
            expected = reference.token_nll(reference.with_adapter(read_back, self.init), self.rows)
            self.below(reference.deviation(found, expected), NLL_LIMIT, f"{kind}, likelihoods")
            whole = reference.with_adapter(float8.read_back_copy(self.base, self.root / f"whole-{kind}", kind), self.init)
            self.beyond(reference.deviation(reference.token_nll(whole, self.rows), expected), 2 * NLL_LIMIT,
                        f"{kind}, all modules in fp8")
            merged = self.programs.merge(mixed, self.init, self.root / f"merged-{kind}")
            self.assertEqual(float8.dtypes(merged), {torch.float32})
            self.below(reference.deviation(reference.token_nll(reference.load(merged), self.rows), found), MERGED_LIMIT,
                       f"{kind}, merged")

    def test_merging_writes_the_numbers_that_were_trained_on(self):
        quantised = float8.quantized_copy(self.base, self.root / "quantised", "rows")
        self.assertEqual(float8.dtypes(quantised), {torch.float8_e4m3fn})
        trained, _ = self.programs.token_nll(quantised, self.data, self.init)
        merged = self.programs.merge(quantised, self.init, self.root / "merged")
        self.assertNotIn("quantization_config", json.loads((merged / "config.json").read_text()))
        self.assertEqual(float8.dtypes(merged), {torch.float32})
        found = reference.token_nll(reference.load(merged), self.rows)
        self.below(reference.deviation(trained, found), MERGED_LIMIT, "merged, likelihoods")
        plain, _ = self.programs.token_nll(self.base, self.data, self.init)
        self.beyond(reference.deviation(plain, found), 2 * MERGED_LIMIT, "merged into what isn't quantised")


if __name__ == "__main__":
    live_test.main()
