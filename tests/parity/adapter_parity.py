"""Adapters go both ways between Lorikeet and PEFT, and merged checkpoints load in transformers, with the same result."""

import json
import shutil

import live_test  # first: it skips where torch or PEFT is missing
import reference
import tiny_llama
import torch
from peft import PeftModel
from transformers import AutoTokenizer

LIMIT = 1e-5
NO_OP = 1e-2  # an adapter that moves likelihoods less than this proves nothing
# One rounding of a weight to bf16 is up to 2^-9 of it; over the whole model that stays far below this.
BF16_LIMIT = 2e-2
PATTERNS = {"rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\..*": 7},
            "alpha_pattern": {"o_proj": 40, "model.layers.0.mlp.up_proj": 1}}


class AdapterParity(live_test.LiveTest):
    def setUp(self):
        super().setUp()
        self.rows = tiny_llama.make_rows(8)
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", self.rows)
        self.base = tiny_llama.make_checkpoint(self.root / "base")

    def train(self, *overrides):
        self.programs.train(self.base, self.data, self.root / "run", "precision.preset=fp32", "lora.rank=4",
                            "batch.global=4", "training.epochs=6", "optimizer.lr=2e-2", *overrides)
        return self.root / "run"

    def check_same(self, adapter, what):
        theirs = reference.token_nll(reference.with_adapter(self.base, adapter), self.rows)
        ours, _ = self.programs.token_nll(self.base, self.data, adapter)
        self.below(reference.deviation(ours, theirs), LIMIT, what)
        bare, _ = self.programs.token_nll(self.base, self.data)
        self.beyond(reference.deviation(bare, theirs), NO_OP, f"{what}, without the adapter")
        return ours

    def test_a_saved_adapter_gives_the_same_in_peft(self):
        self.check_same(self.train(), "saved adapter")

    def test_a_saved_rslora_adapter_on_named_targets_gives_the_same_in_peft(self):
        adapter = self.train("lora.use_rslora=true", "lora.target_modules=[q_proj, v_proj]")
        names = {name.split(".")[-3] for name in reference.adapter_tensors(adapter)}
        self.assertEqual(names, {"q_proj", "v_proj"})
        self.check_same(adapter, "saved rsLoRA adapter of q_proj and v_proj")

    def test_saved_adapters_of_chosen_modules_give_the_same_in_peft(self):
        for index, (options, count) in enumerate((
                (["lora.target_modules='.*(q_proj|layers\\.1\\.mlp.*)'"], 5),
                (["lora.exclude_modules=[k_proj, layers.0.mlp.up_proj]", "lora.layers_to_transform=[0]"], 5),
                (["lora.exclude_modules='.*mlp.*'", "lora.rank_pattern={q_proj: 2, 'layers\\.1\\..*': 7}",
                  "lora.alpha_pattern.o_proj=40"], 8))):
            with self.subTest(options=options):
                shutil.rmtree(self.root / "run", ignore_errors=True)
                adapter = self.train(*options)
                tensors = reference.adapter_tensors(adapter)
                self.assertEqual(sum("lora_A" in name for name in tensors), count)
                if index == 2:
                    ranks = {tuple(name.split(".")[4:7:2]): len(t) for name, t in tensors.items() if "lora_A" in name}
                    self.assertEqual((ranks["0", "q_proj"], ranks["0", "o_proj"], ranks["1", "o_proj"]), (2, 4, 7))
                self.check_same(adapter, f"saved adapter of {options}")

    def test_a_saved_dora_adapter_gives_the_same_in_peft(self):
        adapter = self.train("lora.use_dora=true", "lora.exclude_modules=[k_proj]")
        magnitudes = {name for name in reference.adapter_tensors(adapter) if name.endswith("lora_magnitude_vector")}
        self.assertEqual(len(magnitudes), 12)
        self.check_same(adapter, "saved DoRA adapter")

    def test_saved_tables_and_embedding_adapters_give_the_same_in_peft_and_merged(self):
        for index, (variant, options) in enumerate((
                ("plain", ["lora.target_modules='.*'"]),
                ("plain", ["lora.target_modules='.*'", "lora.use_dora=true"]),
                ("tied", ["lora.target_modules='.*(q_proj|embed_tokens|lm_head)'", "lora.use_dora=true"]),
                ("plain", ["lora.target_modules='.*'", "lora.init=olora"]),
                ("plain", ["lora.modules_to_save=[embed_tokens, lm_head]"]),
                ("tied", ["lora.target_modules='.*(q_proj|embed_tokens)'"]),
                ("tied", ["lora.modules_to_save=lm_head"]),
                ("tied", ["lora.modules_to_save=[embed_tokens]", "lora.ensure_weight_tying=false"]))):
            with self.subTest(variant=variant, options=options):
                self.base = tiny_llama.make_checkpoint(self.root / f"base {index}", variant)
                if variant == "tied":
                    model = reference.load(self.base)
                    (self.base / "model.safetensors").unlink()
                    model.save_pretrained(self.base, max_shard_size="100KB")
                shutil.rmtree(self.root / "run", ignore_errors=True)
                ours = self.check_same(self.train(*options), f"saved {variant} {options}")
                merged = self.programs.merge(self.base, self.root / "run", self.root / f"merged {index}")
                model = reference.load(merged, dtype="auto")
                self.assertEqual(model.config.tie_word_embeddings, variant == "tied" and index == 6)
                self.below(reference.deviation(ours, reference.token_nll(model, self.rows)), LIMIT, f"merged {index}")

    def test_added_tokens_are_the_same_in_transformers_and_peft(self):
        for variant in ("plain", "tied"):
            with self.subTest(variant):
                self.base = tiny_llama.make_checkpoint(self.root / f"base {variant}", variant)
                texts = [f"<|call|>{'ab c' * n}Lorikeet {n}</call> x Lorikeet" for n in range(1, 9)]
                data = self.root / "texts.jsonl"
                data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
                run = self.root / f"run {variant}"
                self.programs.train(self.base, data, run, "precision.preset=fp32", "lora.rank=4", "batch.global=4",
                                    "training.epochs=3", "optimizer.lr=1e-2", "data.train.format=text", "model.add_tokens=[Lorikeet, ab]",
                                    "model.add_special_tokens=['</call>']")
                tokenizer = AutoTokenizer.from_pretrained(run)
                base_size = len(AutoTokenizer.from_pretrained(self.base))
                new = tokenizer.convert_tokens_to_ids(["Lorikeet", "ab", "</call>"])
                self.assertEqual(new, [base_size, base_size + 1, base_size + 2])
                # Words are read in rows, a control token is not: it is what rows are not believed.
                rows = [[0, *tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True), 1] for text in texts]
                self.assertEqual(self.programs.text_labels(self.base, data, run), [row[1:] for row in rows])
                self.assertIn(new[0], rows[0])
                self.assertNotIn(new[2], rows[0])
                rows = [{"input_ids": row, "labels": row} for row in rows]
                data = tiny_llama.write_rows(self.root / f"{variant}.jsonl", rows)
                model = reference.load(self.base)
                model.resize_token_embeddings(len(tokenizer))
                theirs = reference.token_nll(PeftModel.from_pretrained(model, run), rows)
                ours, _ = self.programs.token_nll(self.base, data, run)
                self.below(reference.deviation(ours, theirs), LIMIT, f"{variant} with added tokens")
                merged = self.programs.merge(self.base, run, self.root / f"merged {variant}")
                model = reference.load(merged, dtype="auto")
                self.assertEqual(model.config.vocab_size, len(AutoTokenizer.from_pretrained(merged)))
                self.assertEqual(model.config.tie_word_embeddings, variant == "tied")
                self.below(reference.deviation(ours, reference.token_nll(model, rows)), LIMIT, f"{variant} merged")

    def test_adapters_of_peft_give_the_same_here(self):
        for what, options in (("PEFT's adapter", {}), ("PEFT's rsLoRA adapter", {"use_rslora": True}),
                              ("PEFT's DoRA adapter", {"use_dora": True}),
                              ("PEFT's adapter of q_proj and v_proj", {"targets": ["q_proj", "v_proj"]}),
                              ("PEFT's adapter of a pattern", {"targets": r".*\.(q_proj|(?<!0\.mlp\.)up_proj)"}),
                              ("PEFT's adapter of one layer", {"layers_to_transform": [1], "layers_pattern": "layers"}),
                              ("PEFT's adapter without two modules", {"exclude_modules": ["k_proj", "layers.0.mlp.up_proj"]}),
                              ("PEFT's adapter with patterns", PATTERNS),
                              ("PEFT's adapter of both tables", {"targets": [*reference.LINEARS, "embed_tokens", "lm_head"]}),
                              ("PEFT's DoRA adapter of both tables",
                               {"targets": ["q_proj", "embed_tokens", "lm_head"], "use_dora": True}),
                              ("PEFT's saved tables", {"modules_to_save": ["embed_tokens", "lm_head"]})):
            with self.subTest(what):
                self.check_same(reference.make_adapter(self.base, self.root / what, **options), what)

    def test_an_adapter_trained_by_peft_gives_the_same_here(self):
        init = reference.make_adapter(self.base, self.root / "init")
        model = reference.with_adapter(self.base, init, trainable=True)
        reference.train(model, self.rows * 4, self.root / "trained", lr=1e-2)
        self.assertGreater(reference.update_deviation(init, init, self.root / "trained"), 0.99)
        self.check_same(self.root / "trained", "adapter trained by PEFT")

    def test_a_merged_checkpoint_gives_the_same_in_transformers(self):
        for what, options in (("merged", {}), ("merged rsLoRA", {"use_rslora": True}),
                              ("merged DoRA", {"use_dora": True, **PATTERNS})):
            with self.subTest(what):
                adapter = reference.make_adapter(self.base, self.root / f"{what} adapter", **options)
                with_adapter = self.check_same(adapter, f"{what}, before")
                merged = self.programs.merge(self.base, adapter, self.root / what)
                model = reference.load(merged, dtype="auto")
                self.assertEqual(model.dtype, torch.float32)
                self.below(reference.deviation(with_adapter, reference.token_nll(model, self.rows)), LIMIT, what)

    def test_a_merge_into_bf16_stays_within_its_rounding(self):
        self.base = tiny_llama.make_checkpoint(self.root / "bf16", dtype=torch.bfloat16)
        adapter = reference.make_adapter(self.base, self.root / "bf16 adapter")
        with_adapter = self.check_same(adapter, "bf16 base, before the merge")
        merged = self.programs.merge(self.base, adapter, self.root / "merged")
        self.assertEqual(reference.load(merged, dtype="auto").dtype, torch.bfloat16)
        theirs = reference.token_nll(reference.load(merged), self.rows)
        self.below(reference.deviation(with_adapter, theirs), BF16_LIMIT, "merged into bf16")
        bare = reference.token_nll(reference.load(self.base), self.rows)
        self.beyond(reference.deviation(with_adapter, bare), 2 * BF16_LIMIT, "merged into bf16, without the adapter")


if __name__ == "__main__":
    live_test.main()
