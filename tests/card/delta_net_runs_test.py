"""Gated delta nets (Qwen 3.5), gated short convolutions (LFM2), latent attention (DeepSeek) and Mamba 2 layers (Granite 4 H) on the fake card: the
CPU's losses, on one card and on two, and nothing that would be wrong on a card."""

import pathlib
import sys
import unittest

from card_programs import SECOND, ModelRuns, called_operators
from delta_net import write_delta_net, write_lfm2
from latents import write_latents
from mamba import write_granite

BF16_RELATIVE = 1e-2  # runs_test.py's


class DeltaNets(ModelRuns):
    write_model = staticmethod(write_delta_net)

    def test_the_cpus_losses_by_kernels_of_ours(self):
        plain = self.check("plain", self.FP32_RELATIVE, "precision.preset=fp32")
        saving = self.check("saving", self.FP32_RELATIVE, "precision.preset=fp32", "lora.dropout=0.1",
                            "training.activation_checkpointing=full", "training.offload=activations")
        self.assertNotEqual(self.losses("plain-cpu"), self.losses("saving-cpu"))
        for report in (plain, saving):
            for kernel in ("causal_conv_cuda.cu", "gated_delta_cuda.cu", "gated_norm_cuda.cu", "sigmoid_gate_cuda.cu"):
                self.assertGreater(report["kernels"].get(kernel, 0), 0, kernel)

    def test_a_step_waits_as_often_as_one_with_attention_alone(self):
        def waits(steps):
            return self.train(f"waits-{steps}", SECOND, *self.settings("precision.preset=fp32", f"training.max_steps={steps}",
                                                                       "checkpoint.save_every_steps=100"))["waits"]
        before, after = waits(3), waits(6)
        more = {cause: n - before.get(cause, 0) for cause, n in after.items()}
        self.assertEqual({cause: n for cause, n in more.items() if n}, {"synchronizeEvent": 3 * 2})

    def test_in_16_bits_and_in_4(self):
        self.check("bf16", BF16_RELATIVE)
        self.check("fp16", BF16_RELATIVE, "precision.preset=fp16")
        self.check("nf4", BF16_RELATIVE, "precision.base_storage=nf4")

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards()


class ShortConvolutions(ModelRuns):
    write_model = staticmethod(write_lfm2)

    def test_the_cpus_losses_by_kernels_of_ours(self):
        for name, settings in {"plain": [], "saving": ["lora.dropout=0.1", "training.activation_checkpointing=full"]}.items():
            report = self.check(name, self.FP32_RELATIVE, "precision.preset=fp32", *settings)
            self.assertGreater(report["kernels"].get("gated_conv_cuda.cu", 0), 0)
        self.assertNotEqual(self.losses("plain-cpu"), self.losses("saving-cpu"))

    def test_in_16_bits_and_in_4(self):
        for name, settings in {"bf16": ["lora.target_modules=[in_proj, out_proj, q_proj, w1, w2, w3]"],
                               "nf4": ["precision.base_storage=nf4"]}.items():
            report = self.check(name, BF16_RELATIVE, *settings)
            self.assertGreater(report["kernels"].get("grouped_products_cuda.cu", 0), 0)

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards()


class Latents(ModelRuns):
    write_model = staticmethod(write_latents)

    def test_the_cpus_losses_by_kernels_of_ours(self):
        for name, settings in {"plain": [], "saving": ["lora.dropout=0.1", "training.activation_checkpointing=full"]}.items():
            report = self.check(name, self.FP32_RELATIVE, "precision.preset=fp32", *settings)
            self.assertGreater(report["kernels"].get("latent_heads_cuda.cu", 0), 0)
        self.assertNotEqual(self.losses("plain-cpu"), self.losses("saving-cpu"))

    def test_in_16_bits_and_in_4(self):
        self.check("bf16", BF16_RELATIVE)
        self.check("nf4", BF16_RELATIVE, "precision.base_storage=nf4")


class Mamba2(ModelRuns):
    write_model = staticmethod(write_granite)

    def test_the_cpus_losses_by_kernels_of_ours(self):
        for name, settings in {"plain": [], "saving": ["lora.dropout=0.1", "training.activation_checkpointing=full"]}.items():
            report = self.check(name, self.FP32_RELATIVE, "precision.preset=fp32", *settings)
            self.assertGreater(report["kernels"].get("state_space_cuda.cu", 0), 0)
        self.assertNotEqual(self.losses("plain-cpu"), self.losses("saving-cpu"))

    def test_in_16_bits_and_in_4(self):
        self.check("bf16", BF16_RELATIVE)
        self.check("nf4", BF16_RELATIVE, "precision.base_storage=nf4")

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards()


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2, exit=False).result
    pathlib.Path(sys.argv[4]).write_text("".join(f"{name}\n" for name in sorted(called_operators)))
    sys.exit(not result.wasSuccessful())
