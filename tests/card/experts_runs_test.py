"""A mixture of experts on the fake card: the CPU's losses, on one card and on two, and nothing that would be wrong on a card."""

import pathlib
import sys
import unittest

from card_programs import SECOND, ModelRuns, called_operators
from mixture import write_gemma4, write_gpt_oss, write_mixture, write_shared_mixture

BF16_RELATIVE = 1e-2  # runs_test.py's, and a token near two experts may take the other one
LAYERS = 4
ON_EXPERTS = "lora.target_modules=[q_proj, v_proj, w1, w2, w3]"
ON_STACKS = "lora.target_parameters=[mlp.experts.gate_up_proj, mlp.experts.down_proj]"


class Experts(ModelRuns):
    write_model = staticmethod(write_mixture)

    def test_the_cpus_losses_with_frozen_experts_and_with_adapters_on_them(self):
        frozen = self.check("frozen", self.FP32_RELATIVE, "precision.preset=fp32")
        adapted = self.check("adapted", self.FP32_RELATIVE, "precision.preset=fp32", ON_EXPERTS, "lora.dropout=0.1",
                             "training.activation_checkpointing=mlp")
        self.assertNotEqual(self.losses("frozen-cpu"), self.losses("adapted-cpu"))
        self.assertGreater(adapted["operators"]["aten::mm.out"], frozen["operators"]["aten::mm.out"])
        for report in (frozen, adapted):
            passes = report["operators"]["aten::_efficient_attention_forward"]
            self.assertEqual(report["operators"]["aten::topk.values"], passes)
            # Activations by a kernel of ours, over the rows of all experts at once.
            self.assertEqual(report["kernels"]["activation_cuda.cu"], 2 * passes)

    def test_the_host_waits_where_it_launches_each_experts_products_once_a_layer_for_how_many_rows_they_have(self):
        def copies(name, steps, setting):
            settings = self.settings(setting, f"training.max_steps={steps}", "checkpoint.save_every_steps=100")
            waits = self.train(f"waits-{name}-{steps}", SECOND, *settings)["waits"]
            return waits["copy to the host"] - waits["item"]
        for name, setting, waits in (("fp32", "precision.preset=fp32", LAYERS), ("bf16", "precision.preset=bf16", 0),
                                     ("nf4", "precision.base_storage=nf4", 0)):
            self.assertEqual(copies(name, 6, setting) - copies(name, 3, setting), 3 * waits, name)

    def test_in_16_bits_and_in_4(self):
        adapted = self.check("bf16", BF16_RELATIVE, ON_EXPERTS, "training.activation_checkpointing=mlp")
        dropped = self.check("bf16-dropout", BF16_RELATIVE, ON_EXPERTS, "lora.dropout=0.1")
        frozen = self.check("nf4", BF16_RELATIVE, "precision.base_storage=nf4")
        passes = frozen["operators"]["aten::topk.values"]
        # Of all experts at once: gate and up, and down, in each layer's forward pass, and what flows back through both.
        trained = self.STEPS * LAYERS
        self.assertEqual(frozen["kernels"]["grouped_products_cuda.cu"], 2 * passes + 2 * trained)
        self.assertNotIn("grouped_sums_cuda.cu", frozen["kernels"])
        # A launch decodes a module of all experts: one for each of a layer's seven modules, forward and back, but for q,
        # k and v of the first layer, whose input needs no gradient.
        self.assertEqual(frozen["kernels"]["dequantize_cuda.cu"], 7 * passes + 7 * trained - 3 * self.STEPS)
        # With adapters also a product by each group's A, and back by each of the three B, where sums are added to the
        # gradients of all. Gate and up, with their A, are computed a second time.
        self.assertEqual(adapted["kernels"]["grouped_products_cuda.cu"], 4 * passes + (5 + 2) * trained)
        self.assertEqual(adapted["kernels"]["grouped_sums_cuda.cu"], 5 * trained)
        # Dropout masks are each expert's own.
        self.assertNotIn("grouped_products_cuda.cu", dropped["kernels"])

    def test_adapters_on_stacked_experts_take_one_launch_a_product_for_all_experts(self):
        self.check("stacked-fp32", self.FP32_RELATIVE, "precision.preset=fp32", ON_STACKS)
        report = self.check("stacked", BF16_RELATIVE, ON_STACKS, "training.activation_checkpointing=mlp")
        passes, trained = report["operators"]["aten::topk.values"], self.STEPS * LAYERS
        # As adapters on modules do, but that gate and up share one B: back by each of two B, not three.
        self.assertEqual(report["kernels"]["grouped_products_cuda.cu"], 4 * passes + (4 + 2) * trained)
        self.assertEqual(report["kernels"]["grouped_sums_cuda.cu"], 4 * trained)

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards(ON_EXPERTS)
        self.check_two_cards(ON_STACKS, name="stacks")

    def test_graphs_are_refused_where_each_experts_products_are_launched_by_themselves(self):
        for settings, capability in ((["precision.preset=fp32"], 90), (["precision.preset=fp16"], 75)):
            process = self.start_training("graphs", SECOND, *self.settings("training.cuda_graphs=true", *settings),
                                          capability=capability)
            said = self.finish(process, code=2, cards=0)[1]
            self.assertIn("the host has to read in each layer how many tokens each expert has", said)


class SharedExpert(ModelRuns):
    write_model = staticmethod(write_shared_mixture)

    def test_the_cpus_losses_with_adapters_on_the_shared_expert(self):
        report = self.check("shared", self.FP32_RELATIVE, "precision.preset=fp32", "training.activation_checkpointing=mlp")
        # A pass has one forward a layer, and a gradient in all layers but the first, whose input nobody asks for.
        self.assertGreater(report["kernels"]["row_gate_cuda.cu"], 0)
        self.assertGreater(report["kernels"]["activation_cuda.cu"], report["kernels"]["row_gate_cuda.cu"])

    def test_in_16_bits_and_in_4(self):
        self.check("shared-nf4", BF16_RELATIVE, "precision.base_storage=nf4", "lora.target_modules=[q_proj, shared_expert.down_proj]")

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards()


class BesideMlp(ModelRuns):
    write_model = staticmethod(write_gemma4)
    ON_BOTH = "lora.target_modules=[q_proj, gate_proj, up_proj, down_proj]"

    def test_the_cpus_losses_with_frozen_experts_and_with_adapters_on_them(self):
        frozen = self.check("frozen", self.FP32_RELATIVE, "precision.preset=fp32")
        adapted = self.check("adapted", self.FP32_RELATIVE, "precision.preset=fp32", self.ON_BOTH, "lora.dropout=0.1",
                             "training.activation_checkpointing=full", "training.offload=activations")
        self.assertNotEqual(self.losses("frozen-cpu"), self.losses("adapted-cpu"))
        self.assertGreater(adapted["operators"]["aten::mm.out"], frozen["operators"]["aten::mm.out"])

    def test_in_16_bits_and_in_4(self):
        adapted = self.check("bf16", BF16_RELATIVE, self.ON_BOTH, "training.activation_checkpointing=mlp")
        frozen = self.check("nf4", BF16_RELATIVE, "precision.base_storage=nf4")
        # Of all experts at once, as in other mixtures.
        trained, passes = self.STEPS * LAYERS, frozen["operators"]["aten::topk.values"]
        self.assertEqual(frozen["kernels"]["grouped_products_cuda.cu"], 2 * passes + 2 * trained)
        passes = adapted["operators"]["aten::topk.values"]
        self.assertEqual(adapted["kernels"]["grouped_products_cuda.cu"], 4 * passes + (5 + 2) * trained)
        self.assertEqual(adapted["kernels"]["grouped_sums_cuda.cu"], 5 * trained)

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards(self.ON_BOTH)


class GptOss(ModelRuns):
    write_model = staticmethod(write_gpt_oss)

    def test_the_cpus_losses_with_experts_in_mxfp4(self):
        report = self.check("mxfp4", self.FP32_RELATIVE, "precision.preset=fp32", "training.activation_checkpointing=mlp")
        self.assertGreater(report["kernels"]["sinks_cuda.cu"], 0)
        self.assertGreater(report["kernels"]["dequantize_cuda.cu"], report["kernels"]["sinks_cuda.cu"])
        self.check("mxfp4-bf16", BF16_RELATIVE)

    def test_the_cpus_losses_with_adapters_on_stacked_experts_in_mxfp4(self):
        self.check("stacked", self.FP32_RELATIVE, "precision.preset=fp32", ON_STACKS)
        report = self.check("stacked-bf16", BF16_RELATIVE, ON_STACKS, "training.activation_checkpointing=mlp")
        self.assertGreater(report["kernels"]["grouped_sums_cuda.cu"], 0)

    def test_two_cards_compute_what_one_does(self):
        self.check_two_cards()


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2, exit=False).result
    pathlib.Path(sys.argv[4]).write_text("".join(f"{name}\n" for name in sorted(called_operators)))
    sys.exit(not result.wasSuccessful())
