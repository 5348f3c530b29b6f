"""Every family but Llama, which has tests of its own: likelihoods against transformers, ten LoRA steps against PEFT,
adapters both ways, merged checkpoints and bf16. One process for all of them; a family is a line of families.py."""

import json
import shutil

import live_test  # first: it skips where torch or PEFT is missing
import families
import older_configs
import reference
import tiny_llama
import torch
from safetensors.torch import load_file, save_file

LIMIT = 1e-5
LOSS_LIMIT = NORM_LIMIT = 2e-5
UPDATE_LIMIT = 1e-4
NO_OP = 1e-2  # an adapter that moves likelihoods less than this proves nothing
# How transformers 4 (for multimodal ones: before 4.52) calls modules, and so PEFT's adapters on it, where 5 calls them otherwise; of
# Qwen 3.5 the names in the class without a tower, which AutoModelForCausalLM makes of the same files.
OLDER_NAMES = {"gemma3": ("model.language_model.", "language_model.model."),
               "gemma4": ("model.language_model.", "model."), "gemma4_unified": ("model.language_model.", "model."),
               "mistral3": ("model.language_model.", "language_model.model."),
               "qwen2_vl": ("model.language_model.", "model."), "qwen2_5_vl": ("model.language_model.", "model."),
               "qwen3_5": ("model.language_model.", "model."), "qwen3_5_moe": ("model.language_model.", "model."),
               "gpt_neox": ("lm_head", "embed_out")}
STEPS, BATCH = 10, 4
LONGEST = 60  # past the windows, and past longrope's switch
SETTINGS = ["lora.rank=4", "lora.alpha=8", "lora.dropout=0", "data.packing=true", f"batch.global={BATCH}",
            "training.epochs=1", "training.clip_grad_norm=1.0", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01",
            "lr_scheduler.name=cosine", "lr_scheduler.warmup_steps=2"]


class FamilyParity(live_test.LiveTest):
    """The methods take a family's variant; `add_tests` makes a test of each pair."""

    def make_base(self, family, variant, dtype=torch.float32, **more):
        families.make_checkpoint(self.base, family, variant, dtype, seed=1, vocab_size=320, **more)  # the tokenizer's
        tiny_llama.write_tokenizer(self.base)

    def prepare(self, family, variant, **more):
        self.rows = tiny_llama.make_rows(STEPS * BATCH, longest=LONGEST)
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", self.rows)
        self.few = self.rows[:8]
        self.few_data = tiny_llama.write_rows(self.root / "few.jsonl", self.few)
        self.base = self.root / "base"
        self.make_base(family, variant, **more)

    def targets(self, attention_only):
        """The linear modules of a layer by PEFT's names, which are the checkpoint's."""
        model = reference.load(self.base)
        linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        others = ("lm_head", "embed_out", "shared_expert_gate", ".router.", *families.OTHER_PARTS)
        # PEFT takes the names of these for the routed experts' stacked parameters.
        others += {"qwen3_next": ("shared_expert",), "ernie4_5_moe": ("mlp.",), "glm4_moe": ("mlp.",),
                   "glm4_moe_lite": ("mlp.",), "deepseek_v2": ("mlp.",), "deepseek_v3": ("mlp.",)}.get(model.config.model_type, ())
        names = [name for name in linear if not any(part in name for part in others)]
        if attention_only:
            names = [name for name in names if "mlp." not in name and "feed_forward." not in name]
        return sorted({name.rsplit(".", 1)[1] for name in names})

    def peft_targets(self, family, targets):
        """`targets` for PEFT, which would find them in a vision tower too."""
        return rf"model\.language_model\.(.*\.)?({'|'.join(targets)})" if family in families.MULTIMODAL else targets

    def ours_and_theirs(self, adapter=None):
        ours, _ = self.programs.token_nll(self.base, self.few_data, adapter)
        model = reference.load(self.base) if adapter is None else reference.with_adapter(self.base, adapter)
        return ours, reference.token_nll(model, self.few)

    def check_likelihoods(self):
        ours, theirs = self.ours_and_theirs()
        self.below(reference.deviation(ours, theirs), LIMIT, "a token's likelihood")
        path = self.base / "config.json"
        kept = path.read_text()
        path.write_text(json.dumps(older_configs.to_transformers_4(json.loads(kept))))
        old, _ = self.ours_and_theirs()
        path.write_text(kept)
        self.assertEqual(ours, old, "config.json as transformers 4 writes it")
        return ours

    def check_training(self, family, attention_only=False, head=None):
        what = "attention only" if attention_only else "all linear" if head is None else f"with {head}"
        targets = self.targets(attention_only) + ([] if head is None else [head])
        init = reference.make_adapter(self.base, self.root / f"init {what}", targets=self.peft_targets(family, targets))
        overrides = [f"lora.init={init}"]
        overrides.append("lora.target_modules=all-linear" if what == "all linear" else
                         f"lora.target_modules=[{', '.join(targets)}]")
        run, peft_run = self.root / f"ours {what}", self.root / f"theirs {what}"
        lines = self.programs.train(self.base, self.data, run, "precision.preset=fp32", *SETTINGS, *overrides)
        theirs = reference.train(reference.with_adapter(self.base, init, trainable=True), self.rows, peft_run)
        for index, (quantity, limit) in enumerate([("loss", LOSS_LIMIT), ("grad_norm", NORM_LIMIT)]):
            worst = max(abs(line[quantity] / step[index] - 1) for line, step in zip(lines, theirs, strict=True))
            self.below(worst, limit, f"{what}, {quantity}")
        self.below(reference.update_deviation(init, run, peft_run), UPDATE_LIMIT, f"{what}, update")
        return run, peft_run

    def check_adapter(self, adapter, bare, what):
        ours, theirs = self.ours_and_theirs(adapter)
        self.below(reference.deviation(ours, theirs), LIMIT, what)
        self.beyond(reference.deviation(bare, theirs), NO_OP, f"{what}, without the adapter")
        return ours

    def check_older_names(self, family, adapter, ours):
        """The same adapter as an older PEFT names its tensors and, written out, its modules."""
        older = self.root / "older"
        shutil.copytree(adapter, older)
        new_name, old_name = OLDER_NAMES[family]
        tensors = load_file(older / "adapter_model.safetensors")
        renamed = {name.replace(new_name, old_name): tensor for name, tensor in tensors.items()}
        self.assertNotEqual(renamed.keys(), tensors.keys())
        save_file(renamed, older / "adapter_model.safetensors")
        config = json.loads((older / "adapter_config.json").read_text())
        targets = config["target_modules"]
        config["target_modules"] = (targets.replace(new_name.replace(".", r"\."), old_name.replace(".", r"\."))
                                    if isinstance(targets, str) else [name.replace(new_name, old_name) for name in targets])
        (older / "adapter_config.json").write_text(json.dumps(config))
        found, _ = self.programs.token_nll(self.base, self.few_data, older)
        self.assertEqual(found, ours)
        shutil.rmtree(older)

    def check_merged(self, adapter, ours):
        merged = self.programs.merge(self.base, adapter, self.root / "merged")
        theirs = reference.token_nll(reference.load(merged, dtype="auto"), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, "merged, in transformers")
        before, after = (load_file(folder / "model.safetensors") for folder in (self.base, merged))
        self.assertEqual(before.keys(), after.keys())
        for name in before:
            if any(part in name for part in families.OTHER_PARTS):
                self.assertTrue(torch.equal(before[name], after[name]), name)

    def check_bf16(self, family, variant):
        shutil.rmtree(self.base)
        self.make_base(family, variant, torch.bfloat16)
        exact = reference.token_nll(reference.load(self.base), self.few)
        theirs = reference.token_nll(reference.load(self.base, dtype=torch.bfloat16), self.few)
        ours, _ = self.programs.token_nll(self.base, self.few_data, preset="bf16")
        of = median_distance if any(".experts." in name for name in load_file(self.base / "model.safetensors")) else distance
        self.below(of(ours, exact) / of(theirs, exact), 2, "bf16's distance from fp32 by transformers' own")

    def test_a_head_that_the_checkpoint_calls_embed_out_is_adapted_as_lm_head(self):
        self.prepare("gpt_neox", "parallel")
        self.assertIn("embed_out.weight", load_file(self.base / "model.safetensors"))
        bare, _ = self.ours_and_theirs()
        run, peft_run = self.check_training("gpt_neox", head="lm_head")
        ours = self.check_adapter(run, bare, "our adapter with the head in PEFT")
        theirs = self.check_adapter(peft_run, bare, "PEFT's adapter with the head here")
        self.check_older_names("gpt_neox", peft_run, theirs)
        self.check_merged(run, ours)

    def test_an_adapter_on_the_head_of_a_shared_table_merges_as_transformers_reads_it(self):
        for family, variant in (("gemma3", "nested"), ("mistral3", "ministral-tied"), ("gpt_neox", "parallel")):
            with self.subTest(family):
                shutil.rmtree(self.root / "base", ignore_errors=True)
                shutil.rmtree(self.root / "merged", ignore_errors=True)
                self.prepare(family, variant, tie_word_embeddings=True)
                path = self.base / "config.json"
                config = json.loads(path.read_text())
                if family in families.MULTIMODAL:  # as published: transformers' default ties the two
                    config.pop("tie_word_embeddings")
                    path.write_text(json.dumps(config))
                bare, _ = self.ours_and_theirs()
                adapter = reference.make_adapter(self.base, self.root / f"{family} head", targets=["lm_head"])
                ours = self.check_adapter(adapter, bare, "an adapter on the head")
                merged = self.programs.merge(self.base, adapter, self.root / "merged")
                theirs = reference.token_nll(reference.load(merged, dtype="auto"), self.few)
                self.below(reference.deviation(ours, theirs), LIMIT, "merged, in transformers")
                untied = families.make_checkpoint(self.root / f"{family} untied", family, variant, tie_word_embeddings=False)
                names = [load_file(folder / "model.safetensors").keys() for folder in (merged, untied)]
                self.assertEqual(*names)

    def test_what_published_files_have_of_layers_that_read_others_keys_is_left_as_it_is(self):
        self.prepare("gemma4", "shared-keys")
        bare, _ = self.ours_and_theirs()
        path = self.base / "model.safetensors"
        unread = {f"model.language_model.layers.4.self_attn.{name}.weight": torch.randn(16, 24) for name in ("k_proj", "v_proj")}
        save_file(load_file(path) | unread, path, {"format": "pt"})
        self.assertEqual(self.ours_and_theirs()[0], bare)
        adapter = reference.make_adapter(self.base, self.root / "adapter", targets=self.peft_targets("gemma4", ["q_proj"]))
        merged = load_file(self.programs.merge(self.base, adapter, self.root / "merged") / "model.safetensors")
        for name, tensor in unread.items():
            self.assertTrue(torch.equal(merged[name], tensor), name)

    def test_tokens_that_the_table_of_layers_inputs_has_no_rows_for_are_refused(self):
        self.prepare("gemma4_text", "shared-keys-wide")
        with self.assertRaisesRegex(AssertionError, r"model\.add_tokens.*embed_tokens_per_layer only 320 rows"):
            self.programs.train(self.base, self.data, self.root / "run", "model.add_tokens=[<new>]")

    def check(self, family, variant):
        self.prepare(family, variant)
        bare = self.check_likelihoods()
        run, peft_run = self.check_training(family)
        if self.targets(attention_only=True) != self.targets(attention_only=False):
            self.check_training(family, attention_only=True)
        ours = self.check_adapter(run, bare, "our adapter in PEFT")
        theirs = self.check_adapter(peft_run, bare, "PEFT's adapter here")
        if family in families.MULTIMODAL and family in OLDER_NAMES:
            self.check_older_names(family, run, ours)
            self.check_older_names(family, peft_run, theirs)
        self.check_merged(run, ours)
        self.check_bf16(family, variant)


def differences(a, b):
    a, b = (torch.tensor([value for row in rows for value in row], dtype=torch.float64) for rows in (a, b))
    return (a - b).abs()


def distance(a, b):
    """Root mean square of the differences of all tokens."""
    return differences(a, b).square().mean().sqrt().item()


def median_distance(a, b):
    """Of a mixture of experts: where a token's experts are nearly equal, rounding decides which it passes, and a few tokens that
    pass others are most of the root mean square."""
    return differences(a, b).median().item()


def add_tests():
    for family, variant in families.variants():
        def test(self, family=family, variant=variant):
            self.check(family, variant)
        setattr(FamilyParity, f"test_{family}_{variant.replace('-', '_')}", test)


if __name__ == "__main__":
    add_tests()
    live_test.main()
