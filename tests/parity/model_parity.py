"""fp32 likelihoods of every Llama variant equal transformers', token by token; wrong references do not."""

import live_test  # first: it skips where torch or PEFT is missing
import reference
import tiny_llama
import torch

LIMIT = 1e-5
WRONG = 1e-2


class ModelParity(live_test.LiveTest):
    def rows_and_file(self, count=8):
        rows = tiny_llama.make_rows(count)
        return rows, tiny_llama.write_rows(self.root / "rows.jsonl", rows)

    def compare(self, folder, what):
        rows, data = self.rows_and_file()
        theirs = reference.token_nll(reference.load(folder), rows)
        ours, loss = self.programs.token_nll(folder, data)
        self.below(reference.deviation(ours, theirs), LIMIT, f"{what}, a token")
        flat = torch.tensor([value for row in theirs for value in row], dtype=torch.float64)
        self.below(abs(loss / flat.mean().item() - 1), LIMIT, f"{what}, the loss")
        return rows, ours

    def test_every_variant_equals_transformers(self):
        for variant in tiny_llama.VARIANTS:
            with self.subTest(variant):
                folder = tiny_llama.make_checkpoint(self.root / variant, variant)
                self.compare(folder, variant)

    def test_the_config_layout_of_transformers_4_means_the_same(self):
        for variant in ("plain", "llama3-rope", "linear-rope"):
            with self.subTest(variant):
                new = tiny_llama.make_checkpoint(self.root / variant, variant)
                _, data = self.rows_and_file()
                before, _ = self.programs.token_nll(new, data)
                after, _ = self.programs.token_nll(tiny_llama.to_transformers_4(new), data)
                self.assertEqual(before, after)

    def test_biases_are_not_zero(self):
        folder = tiny_llama.make_checkpoint(self.root / "biases", "biases")
        biases = [p for name, p in reference.load(folder).named_parameters() if name.endswith("bias")]
        self.assertEqual(len(biases), 2 * 7)
        self.assertTrue(all(bias.abs().min() > 0 for bias in biases))

    def test_a_wrong_rotary_base_is_seen(self):
        folder = tiny_llama.make_checkpoint(self.root / "plain")
        rows, ours = self.compare(folder, "plain")
        wrong = reference.load(folder, rope={"rope_theta": 500000.0})
        self.beyond(reference.deviation(ours, reference.token_nll(wrong, rows)), WRONG, "wrong rotary base")

    def test_a_wrong_rotary_scaling_is_seen(self):
        for variant in ("llama3-rope", "linear-rope"):
            with self.subTest(variant):
                folder = tiny_llama.make_checkpoint(self.root / variant, variant)
                rows, ours = self.compare(folder, variant)
                wrong = reference.load(folder, rope={"rope_type": "default"})
                self.beyond(reference.deviation(ours, reference.token_nll(wrong, rows)), WRONG, f"{variant} ignored")
                wrong = reference.load(folder, rope={"factor": 2.0})
                self.beyond(reference.deviation(ours, reference.token_nll(wrong, rows)), WRONG, f"{variant} factor 2")

    def test_a_missing_causal_mask_is_seen(self):
        folder = tiny_llama.make_checkpoint(self.root / "plain")
        rows, ours = self.compare(folder, "plain")
        theirs = reference.token_nll(reference.load(folder), rows, causal=False)
        self.beyond(reference.deviation(ours, theirs), WRONG, "no causal mask")

    def test_a_wrong_attention_scale_is_seen(self):
        folder = tiny_llama.make_checkpoint(self.root / "head-dim", "head-dim")
        rows, ours = self.compare(folder, "head-dim")
        wrong = reference.load(folder)
        for layer in wrong.model.layers:
            layer.self_attn.scaling = (64 / 4) ** -0.5  # hidden / heads instead of head_dim
        self.beyond(reference.deviation(ours, reference.token_nll(wrong, rows)), WRONG, "wrong attention scale")


if __name__ == "__main__":
    live_test.main()
