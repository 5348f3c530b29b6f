"""A base in 4 bits: likelihoods and ten AdamW steps equal PEFT's on the weights that bitsandbytes reads back."""

import live_test  # first: it skips where torch or PEFT is missing
import four_bits
import reference
import tiny_llama
import torch
import training_parity
from training_parity import LOSS_LIMIT, NORM_LIMIT, UPDATE_LIMIT

NLL_LIMIT = 1e-6  # fp32 on both sides: only the order of sums differs
NF4 = "precision.base_storage=nf4"


class QuantizedParity(training_parity.Runs):
    def test_the_reference_reads_what_bitsandbytes_reads(self):
        for name, (weight, numbers, how) in four_bits.goldens().items():
            with self.subTest(name):
                self.assertTrue(torch.equal(four_bits.numbers(weight, **how).to(numbers.dtype), numbers))

    def test_likelihoods_and_ten_steps_on_a_base_quantised_while_it_is_loaded(self):
        base = tiny_llama.make_checkpoint(self.root / "base")
        read_back = four_bits.dequantized_copy(base, self.root / "read-back")
        init = reference.make_adapter(base, self.root / "init")
        ours = self.ours(base, init, NF4)
        self.assert_same_run(ours, self.theirs(read_back, init), init, "nf4, ten steps")
        # The limits see another code book, block size or nesting, and a base that isn't quantised.
        for what, how in (("fp4", {"book": "fp4"}), ("blocks of 128", {"block": 128}), ("scales as they are", {"nested": False}), ("no", None)):
            wrong = base if how is None else four_bits.dequantized_copy(base, self.root / what.replace(" ", "-"), **how)
            theirs = self.theirs(wrong, init)
            self.beyond(max(abs(a[0] / b[0] - 1) for a, b in zip(ours, theirs, strict=True)), 2 * LOSS_LIMIT, f"{what} quantisation, loss")

    def test_likelihoods_and_ten_steps_on_a_checkpoint_that_is_quantised(self):
        base = tiny_llama.make_checkpoint(self.root / "base")
        init = reference.make_adapter(base, self.root / "init")
        for book, nested in (("nf4", True), ("fp4", True), ("nf4", False)):
            name = f"{book}{'-nested' if nested else ''}"
            quantised = four_bits.quantized_copy(base, self.root / f"quantised-{name}", book, nested)
            read_back = four_bits.dequantized_copy(base, self.root / f"read-back-{name}", book=book, nested=nested)
            found, _ = self.programs.token_nll(quantised, self.data, init)
            expected = reference.token_nll(reference.with_adapter(read_back, init), self.rows)
            self.below(reference.deviation(found, expected), NLL_LIMIT, f"{name} checkpoint, likelihoods")
            ours = self.ours(quantised, init, name=f"ours-{name}")
            theirs = self.theirs(read_back, init, name=f"theirs-{name}")
            self.below(max(abs(a[0] / b[0] - 1) for a, b in zip(ours, theirs, strict=True)), LOSS_LIMIT, f"{name} checkpoint, loss")
            self.below(max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs, strict=True)), NORM_LIMIT, f"{name} checkpoint, norm")
            self.below(reference.update_deviation(init, self.root / f"ours-{name}", self.root / f"theirs-{name}"), UPDATE_LIMIT,
                       f"{name} checkpoint, update")


if __name__ == "__main__":
    live_test.main()
