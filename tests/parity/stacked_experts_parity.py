"""Adapters on the parameters in which transformers 5 stacks the experts of a layer (PEFT's target_parameters): trained, read, written
and merged as PEFT does it, on every family that has experts. One process for all of them."""

import json

import live_test  # first: it skips where torch or PEFT is missing
import families
import mxfp4
import reference
import tiny_llama
import torch
from safetensors.torch import load_file

LIMIT = 1e-5
LOSS_LIMIT = NORM_LIMIT = 2e-5
UPDATE_LIMIT = 1e-4
NO_OP = 1e-2  # an adapter that moves likelihoods less than this proves nothing
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
STEPS, BATCH, LONGEST = 10, 4, 60
SETTINGS = ["lora.rank=4", "lora.alpha=8", "data.packing=true", f"batch.global={BATCH}", "training.epochs=1",
            "training.clip_grad_norm=1.0", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01", "lr_scheduler.name=cosine",
            "lr_scheduler.warmup_steps=2"]
MIXTURES = [("qwen2_moe", "plain"), ("qwen3_moe", "normalized"), ("mixtral", "window"), ("olmoe", "plain"), ("gpt_oss", "windows"),
            ("qwen3_next", "fused"), ("qwen3_5_moe_text", "experts"), ("qwen3_vl_moe", "experts"), ("qwen3_5_moe", "nested-tied"),
            ("gemma4_text", "experts"), ("lfm2_moe", "experts"), ("ernie4_5_moe", "shared"), ("glm4_moe", "biases"),
            ("granitemoehybrid", "experts")]
# Of families that name them otherwise: the block of the experts, and attention's modules.
BLOCKS = {"gemma4_text": "", "granitemoehybrid": "block_sparse_moe.", "lfm2_moe": "feed_forward."}
ATTENTIONS = {"lfm2_moe": [*ATTENTION[:3], "out_proj"]}


def listed(names):
    return f"[{', '.join(names)}]"


def settings_of(adapter):
    return json.loads((adapter / "adapter_config.json").read_text())


class StackedExpertsParity(live_test.LiveTest):
    """`check` takes a family's variant; `add_tests` makes a test of each."""

    def prepare(self, family, variant):
        self.rows = tiny_llama.make_rows(STEPS * BATCH, longest=LONGEST)
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", self.rows)
        self.few = self.rows[:8]
        self.few_data = tiny_llama.write_rows(self.root / "few.jsonl", self.few)
        self.base = families.make_checkpoint(self.root / "base", family, variant, seed=1, vocab_size=320)
        tiny_llama.write_tokenizer(self.base)

    def make_adapter(self, name, targets, parameters, **more):
        return reference.make_adapter(self.base, self.root / name, targets=targets, target_parameters=list(parameters), **more)

    def train(self, run, *overrides):
        return self.programs.train(self.base, self.data, run, "precision.preset=fp32", *SETTINGS, *overrides)

    def check_adapter(self, adapter, what):
        """Our likelihoods against PEFT's."""
        ours, _ = self.programs.token_nll(self.base, self.few_data, adapter)
        bare, _ = self.programs.token_nll(self.base, self.few_data)
        theirs = reference.token_nll(reference.with_adapter(self.base, adapter), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, what)
        self.beyond(reference.deviation(bare, theirs), NO_OP, f"{what}, without the adapter")
        return ours

    def check_merged(self, adapter, ours, what):
        merged = self.programs.merge(self.base, adapter, self.root / f"merged {what}")
        theirs = reference.token_nll(reference.load(merged, dtype="auto"), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, f"{what}, merged, in transformers")
        return merged

    def check(self, family, variant):
        self.prepare(family, variant)
        # In PEFT the name alone means a vision tower's modules too.
        attention = ATTENTIONS.get(family, ATTENTION)
        targets = r"model\.language_model\..*\.(q|k|v|o)_proj" if family in families.MULTIMODAL else attention
        parameters = [BLOCKS.get(family, "mlp.") + name for name in ("experts.gate_up_proj", "experts.down_proj")]
        start = self.make_adapter("start", targets, parameters)
        run, peft_run = self.root / "ours", self.root / "theirs"
        lines = self.train(run, f"lora.init={start}", f"lora.target_modules={listed(attention)}",
                           f"lora.target_parameters={listed(parameters)}")
        theirs = reference.train(reference.with_adapter(self.base, start, trainable=True), self.rows, peft_run)
        for index, (quantity, limit) in enumerate([("loss", LOSS_LIMIT), ("grad_norm", NORM_LIMIT)]):
            worst = max(abs(line[quantity] / step[index] - 1) for line, step in zip(lines, theirs, strict=True))
            self.below(worst, limit, f"{family}, {quantity}")
        self.below(reference.update_deviation(start, run, peft_run), UPDATE_LIMIT, f"{family}, update")
        # Every expert's factors have moved, each of them otherwise.
        stack = next(name for name in load_file(run / "adapter_model.safetensors") if name.endswith("experts.base_layer.lora_B.weight"))
        before, after = (load_file(folder / "adapter_model.safetensors")[stack] for folder in (start, run))
        self.assertTrue((before != after).reshape(before.shape[0], 4, -1).any(1).any(0).all())
        self.assertEqual(settings_of(run)["target_parameters"], sorted(parameters))
        ours = self.check_adapter(run, f"{family}, our adapter in PEFT")
        self.check_adapter(peft_run, f"{family}, PEFT's adapter here")
        self.check_merged(run, ours, family)

    def test_one_parameter_alone_without_modules_and_with_other_ranks(self):
        self.prepare("qwen3_moe", "normalized")
        for index, (parameters, more) in enumerate((([GATE_UP], {}), ([DOWN], {"use_rslora": True}), (["gate_up_proj", "down_proj"],
                                                    {"rank_pattern": {"down_proj": 2}, "alpha_pattern": {r".*\.gate_up_proj": 20}}),
                                                    (["0.mlp.experts.down_proj", "1.mlp.experts.gate_up_proj"], {}))):
            with self.subTest(parameters=parameters):
                adapter = self.make_adapter(f"PEFT's {index}", [], parameters, **more)
                ours = self.check_adapter(adapter, f"PEFT's adapter on {parameters}")
                self.check_merged(adapter, ours, str(index))
                run = self.root / f"ours {index}"
                more = [f"lora.{key}={json.dumps(value)}" for key, value in more.items()]
                self.train(run, f"lora.init={adapter}", "lora.target_modules=[]", f"lora.target_parameters={listed(parameters)}", *more)
                self.assertEqual(load_file(run / "adapter_model.safetensors").keys(), load_file(adapter / "adapter_model.safetensors").keys())
                self.assertEqual(settings_of(run)["target_modules"], [])
                self.check_adapter(run, f"our adapter on {parameters}")

    def test_fresh_adapters_beside_all_linear_are_read_by_peft(self):
        for family, variant in (("qwen2_moe", "plain"), ("qwen3_5_moe", "nested-tied"), ("mixtral", "window")):
            with self.subTest(family):
                self.root = self.root / family
                self.root.mkdir()
                self.prepare(family, variant)
                run = self.root / "ours"
                self.train(run, "optimizer.lr=2e-2", f"lora.target_parameters={listed([GATE_UP, DOWN])}")
                ours = self.check_adapter(run, f"{family}, our adapter of all-linear and experts")
                self.check_merged(run, ours, family)

    def test_what_peft_makes_of_older_names_of_experts_is_read(self):
        """On transformers 5 it takes gate_proj, up_proj and down_proj for the stacked parameters, gate and up with twice the rank."""
        self.prepare("qwen3_moe", "normalized")
        adapter = reference.make_adapter(self.base, self.root / "older", targets=["q_proj", "gate_proj", "up_proj", "down_proj"])
        settings = settings_of(adapter)
        self.assertEqual(sorted(settings["target_parameters"]), ["down_proj", "gate_up_proj"])
        self.assertEqual(list(settings["rank_pattern"].values()), [8])
        self.check_adapter(adapter, "PEFT's adapter on experts by their older names")

    def test_experts_in_mxfp4_are_trained_as_they_are_and_merged_as_numbers(self):
        self.prepare("gpt_oss", "windows")
        start = self.make_adapter("start", ATTENTION, [GATE_UP, DOWN])
        self.base = mxfp4.quantized_copy(self.base, self.root / "mxfp4")
        self.check_adapter(start, "experts in mxfp4")
        run = self.root / "ours"
        self.train(run, f"lora.init={start}", f"lora.target_modules={listed(ATTENTION)}", f"lora.target_parameters={listed([GATE_UP, DOWN])}")
        ours = self.check_adapter(run, "experts in mxfp4, our adapter in PEFT")
        merged = self.check_merged(run, ours, "mxfp4")
        tensors = load_file(merged / "model.safetensors")
        self.assertEqual(tensors["model.layers.0.mlp.experts.gate_up_proj"].dtype, torch.float32)  # the embedding's
        self.assertFalse(any(name.endswith(("_blocks", "_scales")) for name in tensors))
        self.assertNotIn("quantization_config", json.loads((merged / "config.json").read_text()))
        untouched = self.root / "untouched"
        self.train(untouched, f"lora.target_modules={listed(ATTENTION)}")
        kept = self.programs.merge(self.base, untouched, self.root / "kept")
        self.assertIn("model.layers.0.mlp.experts.gate_up_proj_blocks", load_file(kept / "model.safetensors"))


def add_tests():
    for family, variant in MIXTURES:
        def test(self, family=family, variant=variant):
            self.check(family, variant)
        setattr(StackedExpertsParity, f"test_{family}", test)


if __name__ == "__main__":
    add_tests()
    live_test.main()
