"""A base in 4 bits: likelihoods and ten AdamW steps equal those of PEFT on bitsandbytes' own modules, and checkpoints
that transformers saved of them are read as they are.

Limits are those of runs in 16 and 32 bits: both sides decode to the same numbers, to the bit, so that only the order of
sums differs. Whatever is quantised otherwise must be beyond twice the limit.
"""

import json

import live_test  # first: it skips where torch or PEFT is missing
import four_bits
import reference
import tiny_llama
import torch
import training_parity
from training_parity import BF16_LOSS_LIMIT, STEPS

try:
    import bitsandbytes
    import linear4bit
except ImportError as error:
    live_test.skip(error)
import families

NLL_LIMIT = 1e-6  # fp32 on both sides: only the order of sums differs
FAMILY_LIMIT = 1e-5  # as of unquantised checkpoints in family_parity.py, whose weights are as wide
MERGED_LIMIT = 1e-5  # fp32: the sum is rounded once, and multiplied in another order than its terms
MERGED_BF16_LIMIT = 2e-2  # each weight rounded to bf16, as in adapter_parity.py
NF4 = "precision.base_storage=nf4"
# (code book, whether scales are nested)
FORMS = [("nf4", True), ("nf4", False), ("fp4", True), ("fp4", False)]
# Families whose modules are fused, biased or interleaved; sizes of which every width is a multiple of a block.
WIDE = dict(vocab_size=320, hidden_size=64, intermediate_size=128)
FAMILIES = [("qwen2", "tied-window-unused", {}), ("phi3", "window", {}), ("gpt_neox", "parallel", {}),
            ("gemma2", "plain", {"head_dim": 16})]


def form_name(book, nested):
    return f"{book}{' nested' if nested else ''}"


class QuantizedParity(training_parity.Runs):
    def make_base(self, dtype=torch.bfloat16):
        base = tiny_llama.make_checkpoint(self.root / "base", "quantizable", dtype=dtype)
        return base, reference.make_adapter(base, self.root / "init")

    def peft_steps(self, model, init, name, **options):
        return reference.train(linear4bit.with_adapter(model, init, trainable=True), self.rows, self.root / name, **options)

    def test_ten_steps_equal_pefts_on_bitsandbytes_modules_in_every_form_and_in_no_other(self):
        base, init = self.make_base()
        ours, theirs = {}, {}
        for form in FORMS:
            name = form_name(*form)
            model = linear4bit.load(base, *form)
            quantised = linear4bit.save(model, self.root / f"saved {name}", base)
            theirs[name] = self.peft_steps(model, init, f"theirs {name}")
            ours[name] = self.ours(quantised, init, name=f"ours {name}")
            self.assert_same_run(ours[name], theirs[name], init, f"{name} checkpoint",
                                 names=(f"ours {name}", f"theirs {name}"))
        loaded = self.ours(base, init, NF4, name="ours loaded")
        self.assert_same_run(loaded, theirs["nf4 nested"], init, "quantised while it is loaded",
                             names=("ours loaded", "theirs nf4 nested"))
        # The limits see another code book, block size or nesting, and a base that isn't quantised.
        theirs["blocks of 128"] = self.peft_steps(linear4bit.load_in_blocks(base, 128), init, "theirs blocks of 128")
        theirs["not quantised"] = self.theirs(base, init, "theirs not quantised")
        for name, history in theirs.items():
            if name == "nf4 nested":
                continue
            for quantity, deviation, limit in self.deviations(loaded, history, init, names=("ours loaded", f"theirs {name}")):
                self.beyond(deviation, 2 * limit, f"nf4 nested against {name}, {quantity}")

    def test_likelihoods_of_checkpoints_that_transformers_saved(self):
        base, init = self.make_base()
        for form in FORMS:
            name = form_name(*form)
            quantised = linear4bit.save(linear4bit.load(base, *form), self.root / f"saved {name}", base)
            self.assert_same_likelihoods(quantised, init, NLL_LIMIT, name)
        plain, _ = self.programs.token_nll(base, self.data, init)
        found, _ = self.programs.token_nll(quantised, self.data, init)
        self.beyond(reference.deviation(plain, found), 2 * NLL_LIMIT, "the base unquantised")

    def test_a_checkpoint_with_modules_that_were_left_as_numbers(self):
        base, init = self.make_base()
        # A block of a layer, and one of three modules that share a matrix here.
        skipped = ["lm_head", "model.layers.0.mlp", "model.layers.1.self_attn.q_proj"]
        model = linear4bit.load(base, skip=skipped)
        self.assertEqual(len(linear4bit.modules(model)), len(linear4bit.modules(linear4bit.load(base))) - 4)
        mixed = linear4bit.save(model, self.root / "saved mixed", base)
        self.assertEqual(json.loads((mixed / "config.json").read_text())["quantization_config"]["llm_int8_skip_modules"], skipped)
        self.assert_same_likelihoods(mixed, init, NLL_LIMIT, "modules left as numbers")
        found, _ = self.programs.token_nll(mixed, self.data, init)
        whole = linear4bit.save(linear4bit.load(base), self.root / "saved whole", base)
        quantised, _ = self.programs.token_nll(whole, self.data, init)
        self.beyond(reference.deviation(quantised, found), 2 * NLL_LIMIT, "all modules in 4 bits")
        ours = self.ours(mixed, init, name="ours mixed")
        theirs = self.peft_steps(linear4bit.load(mixed), init, "theirs mixed")
        self.assert_same_run(ours, theirs, init, "modules left as numbers", names=("ours mixed", "theirs mixed"))

    def assert_same_likelihoods(self, quantised, init, limit, what):
        found, _ = self.programs.token_nll(quantised, self.data, init)
        model = linear4bit.load(quantised)
        expected = reference.token_nll(model if init is None else linear4bit.with_adapter(model, init), self.rows)
        self.below(reference.deviation(found, expected), limit, f"{what}, likelihoods")

    def test_checkpoints_that_were_saved_in_bf16(self):
        base, init = self.make_base()
        # What bitsandbytes calls quant_storage is the dtype that codes are stored as; FSDP needs that of the model.
        for storage in (torch.uint8, torch.bfloat16):
            model = linear4bit.load(base, dtype=torch.bfloat16, storage=storage)
            quantised = linear4bit.save(model, self.root / f"saved as {storage}", base)
            self.assert_same_likelihoods(quantised, init, NLL_LIMIT, f"saved in bf16, codes as {storage}")
        theirs = self.peft_steps(model, init, "theirs", bf16=True)
        ours = self.ours(quantised, init, preset="bf16")
        self.below(max(abs(a[0] - b[0]) for a, b in zip(ours, theirs, strict=True)), BF16_LOSS_LIMIT, "bf16 loss")
        wrong = self.peft_steps(linear4bit.load(base, "fp4", dtype=torch.bfloat16), init, "wrong", bf16=True)
        self.beyond(max(abs(a[0] - b[0]) for a, b in zip(ours, wrong, strict=True)), 2 * BF16_LOSS_LIMIT, "bf16 loss with fp4")

    def test_checkpoints_of_families_with_fused_biased_and_interleaved_modules(self):
        for family, variant, more in FAMILIES:
            base = families.make_checkpoint(self.root / family, family, variant, seed=1, **WIDE, **more)
            tiny_llama.write_tokenizer(base)
            model = linear4bit.load(base)
            self.assertTrue(linear4bit.modules(model))
            quantised = linear4bit.save(model, self.root / f"saved {family}", base)
            self.assert_same_likelihoods(quantised, None, FAMILY_LIMIT, family)

    def test_the_plain_definition_is_what_bitsandbytes_computes(self):
        for name, (weight, numbers, how) in four_bits.goldens().items():
            with self.subTest(name):
                self.assertTrue(torch.equal(four_bits.numbers(weight, **how).to(numbers.dtype), numbers))
        torch.manual_seed(0)
        weight = torch.randn(140, 128)
        for book, nested in FORMS:
            for block in (64, 128):
                codes, state = bitsandbytes.functional.quantize_4bit(weight, blocksize=block, quant_type=book, compress_statistics=nested)
                with self.subTest(form_name(book, nested), block=block):
                    self.assertTrue(torch.equal(four_bits.numbers(weight, book, block, nested),
                                                bitsandbytes.functional.dequantize_4bit(codes, state)))

    def test_widths_that_end_within_a_block_have_the_definitions_numbers(self):
        base = tiny_llama.make_checkpoint(self.root / "base")  # down_proj is 160 wide
        init = reference.make_adapter(base, self.root / "init")
        for book, nested in FORMS:
            name = form_name(book, nested)
            quantised = four_bits.quantized_copy(base, self.root / f"quantised {name}", book, nested)
            read_back = four_bits.dequantized_copy(base, self.root / f"read back {name}", book=book, nested=nested)
            found, _ = self.programs.token_nll(quantised, self.data, init)
            expected = reference.token_nll(reference.with_adapter(read_back, init), self.rows)
            self.below(reference.deviation(found, expected), NLL_LIMIT, f"{name} checkpoint of odd widths, likelihoods")

    def test_merging_into_a_quantised_checkpoint_writes_the_numbers_it_was_trained_on_unquantised(self):
        init = reference.make_adapter(tiny_llama.make_checkpoint(self.root / "any"), self.root / "init")
        for dtype, limit in ((torch.float32, MERGED_LIMIT), (torch.bfloat16, MERGED_BF16_LIMIT)):
            for index, (book, nested) in enumerate((("nf4", True), ("fp4", False))):
                name = f"{dtype} {book}".removeprefix("torch.")
                base = tiny_llama.make_checkpoint(self.root / f"base {name}", dtype=dtype)
                quantised = four_bits.quantized_copy(base, self.root / f"quantised {name}", book, nested)
                if index == 0:
                    four_bits.split(quantised)
                trained, _ = self.programs.token_nll(quantised, self.data, init)
                merged = self.programs.merge(quantised, init, self.root / f"merged {name}")
                self.assertNotIn("quantization_config", json.loads((merged / "config.json").read_text()))
                model = reference.load(merged, dtype="auto")
                self.assertEqual(model.model.layers[0].mlp.up_proj.weight.dtype, dtype)
                found = reference.token_nll(model.float(), self.rows)
                self.below(reference.deviation(trained, found), limit, f"merged {name}, likelihoods")
                without, _ = self.programs.token_nll(quantised, self.data)
                self.beyond(reference.deviation(without, found), 2 * limit, f"merged {name} without the adapter")
                plain, _ = self.programs.token_nll(base, self.data, init)
                self.beyond(reference.deviation(plain, found), 2 * limit, f"merged {name} into what isn't quantised")

    def test_an_adapter_of_a_quantised_checkpoint_is_merged_into_the_base_that_is_given(self):
        base = tiny_llama.make_checkpoint(self.root / "base")
        init = reference.make_adapter(base, self.root / "init")
        quantised = four_bits.quantized_copy(base, self.root / "quantised")
        given = self.programs.merge(quantised, init, self.root / "given", "--base", base)
        alone = self.programs.merge(base, init, self.root / "alone")
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((given / name).read_bytes(), (alone / name).read_bytes())


if __name__ == "__main__":
    live_test.main()
