"""The programs on the fake card (docs/fake-card.md): the CPU's losses, and nothing that would be wrong on a card.

Most runs are on the second card, where code that forgets to set its device goes to the first. Beside the arguments of
card_programs.py a file: the operators that were called on the card are written to it.
"""

import json
import pathlib
import shutil
import signal
import statistics
import sys
import unittest

from card_programs import BOTH, CPU, FIRST, SECOND, CardPrograms, called_operators, harness

# The same sums in another order: fp32 agrees to its rounding. bf16 rounds each product to 8 bits, and what a CPU without
# bf16 arithmetic rounds less: there 2.3e-3 was seen after six steps, whose losses fall by 40%. A rate 10% too high
# makes 5.7e-3 in three.
FP32_RELATIVE = 1e-5
BF16_RELATIVE = 3e-3
# Products in fp8 against the CPU's references, two steps of eight seeds: losses differed by up to 5.5e-4, norms of
# gradients by 7e-4, on a CPU that widens bf16 by 1.7e-3. Products in bf16 are further off: by 4.5e-3 or more in one of the
# two norms. Where a sum's last bit differs, an activation becomes the next of e4m3's numbers. So the CPU's kernel of
# attention, which rounds probabilities to bf16 where a CPU multiplies it natively, is off by 1.4e-2, and later steps drift
# apart: by 3e-3 in the third.
FP8_STEPS = 2
FP8_LOSS, FP8_NORM = 1.2e-3, 4e-3
STEPS = "training.max_steps=6"
USUAL = 16384  # what auto begins with for so small a model on the fake card, an H100 by its name
USUAL_FP32 = 8192  # in fp32, in which that card is no fast one
AUTOMATIC = "batch.micro_tokens=auto"  # by a trial
LAYERS = 4  # of the example's model


class Training(CardPrograms):
    def assert_our_kernels_ran(self, report, in_16_bits):
        """Norms, activations and rotary by kernels of ours, of which every layer has two, one and one, forward and back.

        In 16 bits activations and norms add low-rank terms on the way."""
        passes = report["operators"].get("aten::_flash_attention_forward",
                                         report["operators"].get("aten::_efficient_attention_forward"))
        activations = "gated_terms_cuda.cu" if in_16_bits else "activation_cuda.cu"
        norms = report["kernels"].get("norm_terms_cuda.cu", 0)
        self.assertGreaterEqual(norms, passes if in_16_bits else 0)
        self.assertGreaterEqual(report["kernels"]["norm_cuda.cu"] + norms, 4 * passes)
        for file in (activations, "rotary_cuda.cu"):  # rotary's kernel with terms takes no heads of 32
            self.assertGreaterEqual(report["kernels"][file], 2 * passes, file)
        for operator in ("aten::silu", "aten::silu_backward", "aten::rsqrt"):
            self.assertNotIn(operator, report["operators"])

    def test_packed_rows_in_fp32(self):
        report = self.train_beside("fp32", (CPU, SECOND), "precision.preset=fp32", STEPS)[1]
        self.assert_losses_near("fp32", SECOND, FP32_RELATIVE)
        self.assertNotIn("aten::_flash_attention_forward", report["operators"])
        self.assertGreater(report["operators"]["aten::_efficient_attention_backward"], 0)
        self.assert_our_kernels_ran(report, in_16_bits=False)

    def test_bf16_with_flash_attention_on_either_card(self):
        reports = self.train_beside("bf16", (CPU, FIRST, SECOND), STEPS)[1:]
        for device, report in zip((FIRST, SECOND), reports):
            self.assert_losses_near("bf16", device, BF16_RELATIVE)
            self.assertGreater(report["operators"]["aten::_flash_attention_backward"], 0)
            self.assert_our_kernels_ran(report, in_16_bits=True)
        self.assertEqual(self.losses("bf16-cuda0"), self.losses("bf16-cuda1"))

    def test_dropout_checkpointing_and_several_micro_batches_of_single_rows(self):
        overrides = ("precision.preset=fp32", "lora.dropout=0.1", "training.activation_checkpointing=full",
                     "data.packing=false", "batch.micro_tokens=200", "training.max_steps=4")
        report = self.train_beside("dropout", (CPU, SECOND), *overrides)[1]
        self.assert_losses_near("dropout", SECOND, FP32_RELATIVE)
        self.assertGreater(report["kernels"]["dropout_mask.cu"], 0)

    def test_a_base_in_fp8(self):
        report = self.train_beside("fp8", (CPU, SECOND), "precision.preset=fp32", "precision.base_storage=fp8", STEPS)[1]
        self.assert_losses_near("fp8", SECOND, FP32_RELATIVE)
        self.assertGreater(report["kernels"]["float8_cuda.cu"], 0)

    def assert_near_in_fp8(self, key, relative):
        lines = [harness.metrics(self.work / self.folder_of("fp8mm", device))[:FP8_STEPS] for device in (CPU, SECOND)]
        for cpu, card in zip(*lines):
            self.assertLess(abs(card[key] - cpu[key]), relative * cpu[key], f"step {cpu['step']}")

    def test_products_in_fp8_on_a_card_that_has_them(self):
        steps = f"training.max_steps={FP8_STEPS + 1}"  # more than the warm-up's
        overrides = ("precision.base_storage=fp8", "precision.matmul=fp8", steps)
        cards = self.start_training(self.folder_of("fp8mm", SECOND), SECOND, *overrides, capability=90)
        cpu = self.start_training(self.folder_of("fp8mm", CPU), CPU, *overrides, references=True)
        report = self.finish(cards)[2]
        self.finish(cpu, cards=0)
        self.assertGreater(report["operators"]["aten::_scaled_mm.out"], 0)
        for key, relative in (("loss", FP8_LOSS), ("grad_norm", FP8_NORM)):
            self.assert_near_in_fp8(key, relative)
        shutil.rmtree(self.work / self.folder_of("fp8mm", SECOND))
        self.train(self.folder_of("fp8mm", SECOND), SECOND, "precision.base_storage=fp8", steps, capability=90)
        for key, relative in (("loss", FP8_LOSS), ("grad_norm", FP8_NORM)):
            with self.assertRaisesRegex(AssertionError, "step [12]$"):
                self.assert_near_in_fp8(key, relative)
        said = self.finish(self.start_training("refused", SECOND, *overrides, capability=86), code=2, cards=0)[1]
        self.assertIn("has no fp8 arithmetic", said)
        for broken, cause in (({"capability": 120}, "it was refused: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"),
                              ({"capability": 100}, "it was refused: cutlass cannot initialize"),
                              ({"capability": 90, "wrong_operator": "aten::_scaled_mm"}, "its numbers are off by")):
            said = self.finish(self.start_training("refused", SECOND, *overrides, **broken), code=3)[1]
            self.assertIn(cause, said)
            self.assertIn("leave precision.matmul out", said)

    def test_dora_with_a_frozen(self):
        self.train_beside("dora", (CPU, SECOND), "precision.preset=fp32", "lora.use_dora=true", "lora.freeze_a=true",
                          "optimizer.loraplus_lr_ratio=4", STEPS)
        self.assert_losses_near("dora", SECOND, FP32_RELATIVE)

    def test_an_adapter_on_the_embedding_beside_a_trained_head(self):
        self.train_beside("tables", (CPU, SECOND), "precision.preset=fp32", "lora.target_modules='.*'",
                          "lora.modules_to_save=lm_head", STEPS)
        self.assert_losses_near("tables", SECOND, FP32_RELATIVE)

    def test_dropout_in_bf16(self):
        report = self.train_beside("dropout16", (CPU, SECOND), "lora.dropout=0.1", "training.max_steps=4")[1]
        self.assert_losses_near("dropout16", SECOND, BF16_RELATIVE)
        self.assertGreater(report["kernels"]["dropout_mask.cu"], 0)

    def test_references_launch_no_kernel_and_give_the_same_losses(self):
        overrides = ("precision.base_storage=nf4", "lora.dropout=0.1", "training.max_steps=3")
        kernels = self.start_training(self.folder_of("references", CPU), SECOND, *overrides)
        process = self.start_training(self.folder_of("references", SECOND), SECOND, *overrides, references=True)
        before, after = self.finish(kernels)[2], self.finish(process)[2]
        self.assertEqual(sorted(before["kernels"]),
                         ["adamw_cuda.cu", "dequantize_cuda.cu", "dropout_mask.cu", "gated_terms_cuda.cu", "norm_cuda.cu",
                          "norm_terms_cuda.cu", "rotary_cuda.cu", "softmax_cuda.cu"])
        self.assertEqual(after["kernels"], {})
        for name in ("aten::_flash_attention_forward", "aten::_flash_attention_backward"):
            self.assertGreater(before["operators"][name], 0)
            self.assertNotIn(name, after["operators"])
        self.assert_losses_near("references", SECOND, BF16_RELATIVE)

    def test_the_comparison_of_losses_can_fail(self):
        processes = [
            self.start_training(self.folder_of("rate", device), device, "training.max_steps=3", f"optimizer.lr={rate}")
            for device, rate in ((CPU, "2e-3"), (SECOND, "2.2e-3"))
        ]
        for process in processes:
            self.finish(process)
        with self.assertRaisesRegex(AssertionError, "step 3: "):
            self.assert_losses_near("rate", SECOND, BF16_RELATIVE)

    def test_fp16_with_its_gradient_scaling_and_validation(self):
        output = "fp16"
        self.train(output, SECOND, "precision.preset=fp16", "training.max_steps=4", "data.validation.fraction=0.02")
        lines = harness.metrics(self.work / output)
        self.assertIn("val_loss", lines[-1])
        self.assertEqual(len(lines), 5)

    def test_fp16_on_a_card_before_ampere_takes_the_efficient_kernels(self):
        runs = {"ampere": 80, "turing": 75}
        processes = [
            self.start_training(name, SECOND, "precision.preset=fp16", "training.max_steps=3", capability=capability)
            for name, capability in runs.items()
        ]
        ampere, turing = [self.finish(process)[2]["operators"] for process in processes]
        self.assertGreater(ampere["aten::_flash_attention_backward"], 0)
        self.assertNotIn("aten::_flash_attention_forward", turing)
        self.assertEqual(turing["aten::_efficient_attention_backward"], ampere["aten::_flash_attention_backward"])
        for expected, got in zip(self.losses("ampere"), self.losses("turing")):
            self.assertLess(abs(got - expected), BF16_RELATIVE * expected)


class QuantizedBase(CardPrograms):
    """Linear weights in 4 bits, decoded by our own kernel."""

    NF4 = "precision.base_storage=nf4"
    KERNEL = "dequantize_cuda.cu"
    MODULES = 7  # of a layer: each is decoded by itself, forward and again backward

    def test_bf16_with_all_in_memory_or_offloaded_and_recomputed(self):
        overrides = (self.NF4, "batch.micro_tokens=200", "training.max_steps=3", "lora.dropout=0.1")
        saving = ("training.offload=both", "training.activation_checkpointing=full")
        process = self.start_training("nf4-saving", SECOND, *overrides, *saving)
        plain = self.train_beside("nf4", (CPU, SECOND), *overrides)[1]
        saved = self.finish(process)[2]
        self.assert_losses_near("nf4", SECOND, BF16_RELATIVE)
        self.assertEqual(self.losses("nf4-saving"), self.losses("nf4-cuda1"))
        # The lowest group's input needs no gradient.
        self.assertGreater(plain["kernels"][self.KERNEL], 3 * (2 * LAYERS * self.MODULES - 3))
        self.assertGreater(saved["kernels"][self.KERNEL], plain["kernels"][self.KERNEL])

    def test_dora_in_fp32_takes_the_norms_of_decoded_weights(self):
        self.train_beside("nf4-dora", (CPU, SECOND), self.NF4, "precision.preset=fp32", "lora.use_dora=true",
                          "batch.micro_tokens=200", "training.max_steps=3")
        self.assert_losses_near("nf4-dora", SECOND, FP32_RELATIVE)


class SteadyStep(CardPrograms):
    def test_a_step_makes_one_upload_and_two_waits_and_the_card_is_busy_meanwhile(self):
        # What runs of 7 and of 5 steps do more than the other is two steps of several micro-batches each.
        overrides = ("batch.micro_tokens=200", "checkpoint.save_every_steps=100", "lora.dropout=0.1")
        processes = [self.start_training(f"steady{n}", SECOND, f"training.max_steps={n}", *overrides) for n in (5, 7)]
        before, after = [self.finish(process)[2] for process in processes]
        flash = "aten::_flash_attention_forward"
        self.assertGreaterEqual(after["operators"][flash] - before["operators"][flash], 2 * 2 * LAYERS)
        for kind in ("uploads", "pinned_uploads"):
            self.assertEqual(after[kind] - before[kind], 2, kind)
        waits = {cause: n - before["waits"].get(cause, 0) for cause, n in after["waits"].items()}
        # Of the loss and the norm, while the card works on the next step.
        self.assertEqual({cause: n for cause, n in waits.items() if n}, {"synchronizeEvent": 2 * 2})
        self.assertEqual(after["idle_waits"], before["idle_waits"])

    def test_each_step_has_the_time_that_the_card_took_for_it(self):
        # Step 3 is launched behind step 2, but read before step 4 is launched: a checkpoint comes behind it. The host's clock
        # gave it no time, and step 2 the time of both.
        self.finish(self.start_training("timed", SECOND, "training.max_steps=5", "checkpoint.save_every_steps=3"))
        steps = [json.loads(line) for line in (self.work / "timed" / "metrics.jsonl").read_text().splitlines()]
        seconds = [step["step_seconds"] for step in steps]
        self.assertEqual(len(seconds), 5)
        self.assertGreater(min(seconds), statistics.median(seconds) / 10)
        self.assertLess(sum(seconds), steps[-1]["elapsed_seconds"])


class MemorySaving(CardPrograms):
    """However memory is saved: the same bits, no hazard, and no wait of the host."""

    SAVINGS = {
        "plain": (),
        "mlp": ("training.activation_checkpointing=mlp",),
        "activations": ("training.offload=activations",),
        "weights": ("training.offload=weights", "training.activation_checkpointing=full"),
        "both": ("training.offload=both", "training.activation_checkpointing=mlp"),
    }

    def test_recomputation_and_offload_give_the_same_losses(self):
        overrides = ("batch.micro_tokens=200", "training.max_steps=4", "lora.dropout=0.1")
        processes = {name: self.start_training(name, SECOND, *overrides, *saving)
                     for name, saving in self.SAVINGS.items()}
        reports = {name: self.finish(process)[2] for name, process in processes.items()}
        for name, report in reports.items():
            self.assertEqual(self.losses(name), self.losses("plain"), name)
            more = report["pinned_downloads"] > reports["plain"]["pinned_downloads"]  # a step's loss and norm
            self.assertEqual(more, name in ("activations", "both"), name)
            for cause in ("item", "copy to the host"):
                self.assertEqual(report["waits"].get(cause), reports["plain"]["waits"].get(cause), name)
        facts = json.loads((self.work / "both" / "run.json").read_text())
        self.assertEqual((facts["activation_checkpointing"], facts["offload"]), ("mlp", "both"))

    def test_auto_takes_the_fastest_that_fits(self):
        auto = ("training.activation_checkpointing=auto", "training.offload=auto", "batch.micro_tokens=2048",
                "batch.global=32", "training.max_steps=3")
        processes = {total: self.start_training(f"auto{total}", SECOND, *auto, total_mib=total)
                     for total in (200, 110, 90)}
        said = {total: self.finish(process)[1] for total, process in processes.items()}
        chosen = []
        for total in processes:
            self.assertIn("the fastest that fits by the plan", said[total])
            facts = json.loads((self.work / f"auto{total}" / "run.json").read_text())
            self.assertEqual(facts["micro_tokens"], 2048)
            self.assertLess(sum(facts["expected_memory_bytes"].values()), total << 20)
            chosen.append((facts["activation_checkpointing"], facts["offload"]))
            self.assertEqual(self.losses(f"auto{total}"), self.losses("auto200"))
        self.assertEqual(chosen[0], ("none", "none"))
        self.assertEqual(len(set(chosen)), 3, chosen)

    def test_a_run_out_of_memory_names_what_would_fit(self):
        said = self.finish(self.start_training("short", SECOND, "batch.micro_tokens=4096", "batch.global=64",
                                               "training.max_steps=3", memory_mib=60), code=1)[1]
        self.assertRegex(said, "out of memory: a step needs about .*would fit")


class TrialStep(CardPrograms):
    def forward_passes(self, report):
        return report["operators"]["aten::_flash_attention_forward"] // LAYERS

    def test_automatic_micro_batches_make_one_trial_pass(self):
        process = self.start_training("auto", SECOND, "training.max_steps=3", AUTOMATIC)
        configured = self.train("fixed", SECOND, "training.max_steps=3", f"batch.micro_tokens={USUAL}")
        said, report = self.finish(process)[1:]
        self.assertNotIn("micro-batches of at most 4096 tokens instead", said)
        self.assertEqual(self.forward_passes(report), self.forward_passes(configured) + 1)
        self.assertEqual(self.losses("auto"), self.losses("fixed"))

    def test_a_trial_that_runs_out_of_memory_makes_micro_batches_smaller(self):
        # In fp32, whose products a CPU does several times as fast.
        said = self.finish(self.start_training("small", SECOND, "training.max_steps=3", AUTOMATIC, "precision.preset=fp32",
                                               memory_mib=120))[1]
        self.assertRegex(said, "warning: micro-batches of at most .* as a trial found")
        facts = json.loads((self.work / "small" / "run.json").read_text())
        self.assertLess(facts["micro_tokens"], USUAL_FP32)
        self.assertEqual(facts["micro_tokens_of_device_kind"], USUAL_FP32)


class TwoCards(CardPrograms):
    """Two ranks with a card each, NCCL's place taken by Gloo on a stream of its own."""

    def start_on_two(self, name, *overrides, **options):
        arguments = ("run", "--nproc", 2, "lora_finetune_distributed", "--config", self.work / "config.yaml",
                     f"checkpoint.output_dir={self.work / self.folder_of(name, BOTH)}", "training.max_steps=4", *overrides)
        return self.start("lorikeet", arguments, BOTH, **options)

    def train_on_two(self, name, *overrides):
        return self.finish(self.start_on_two(name, *overrides), cards=2)[2]

    def test_replicated_and_sharded_weights_give_one_cpus_losses(self):
        overrides = ("precision.preset=fp32", "lora.dropout=0.1", "batch.micro_tokens=200")
        self.train(self.folder_of("replicate", CPU), CPU, "training.max_steps=4", *overrides)
        shutil.copytree(self.work / self.folder_of("replicate", CPU), self.work / self.folder_of("shard", CPU))
        for strategy in ("replicate", "shard"):
            reports = self.train_on_two(strategy, f"distributed.strategy={strategy}", *overrides)
            self.assert_losses_near(strategy, BOTH, FP32_RELATIVE)
            for report in reports:
                self.assertGreater(report["kernels"]["dropout_mask.cu"], 0)

    def test_sharded_weights_in_4_bits_give_one_cpus_losses(self):
        overrides = ("precision.preset=fp32", QuantizedBase.NF4, "batch.micro_tokens=200")
        self.train(self.folder_of("nf4-shard", CPU), CPU, "training.max_steps=4", *overrides)
        for report in self.train_on_two("nf4-shard", "distributed.strategy=shard", *overrides):
            self.assertGreater(report["kernels"][QuantizedBase.KERNEL], 4 * LAYERS * QuantizedBase.MODULES)
        self.assert_losses_near("nf4-shard", BOTH, FP32_RELATIVE)

    def test_a_card_that_runs_out_of_memory_in_the_trial_makes_both_ranks_micro_batches_smaller(self):
        for strategy in ("replicate", "shard"):
            # In fp32, whose products a CPU does several times as fast.
            process = self.start_on_two(f"small-{strategy}", AUTOMATIC, f"distributed.strategy={strategy}",
                                        "precision.preset=fp32", memory_mib="4000,100")
            said, reports = self.finish(process, cards=2)[1:]
            self.assertRegex(said, "warning: micro-batches of at most .* as a trial found")
            facts = json.loads((self.work / self.folder_of(f"small-{strategy}", BOTH) / "run.json").read_text())
            self.assertLess(facts["micro_tokens"], USUAL_FP32)
            # Both made the same passes: the one that failed less of them.
            forward = [report["operators"]["aten::_efficient_attention_forward"] for report in reports]
            self.assertNotEqual(forward[0], forward[1])


class Resume(CardPrograms):
    def test_an_interrupted_run_goes_on_bit_for_bit(self):
        self.check_resume()

    def test_an_interrupted_run_on_4_bit_weights_goes_on_bit_for_bit(self):
        self.check_resume(QuantizedBase.NF4, "precision.preset=fp32", "batch.micro_tokens=200")

    def check_resume(self, *more):
        for name in ("whole", "interrupted"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        overrides = ("lora.dropout=0.1", "training.max_steps=8", "checkpoint.save_every_steps=100", *more)
        whole = self.start_training("whole", SECOND, *overrides)
        process = self.start_training("interrupted", SECOND, *overrides)
        metrics = self.work / "interrupted" / "metrics.jsonl"
        self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, seconds=170))
        process.send_signal(signal.SIGINT)
        self.finish(process, code=130)
        done = len(self.losses("interrupted"))
        self.assertLess(done, 8)
        self.train("interrupted", SECOND, *overrides)
        self.finish(whole)
        for file in ("adapter_model.safetensors", "checkpoints/step_8/optimizer.safetensors"):
            self.assertEqual(
                (self.work / "interrupted" / file).read_bytes(), (self.work / "whole" / file).read_bytes(), file
            )
        self.assertEqual(self.losses("interrupted"), self.losses("whole"))


class Verbs(CardPrograms):
    MODEL = harness.EXAMPLE / "base"

    def both(self, *arguments):
        """What a verb prints on the CPU and on the second card."""
        processes = [self.start("lorikeet", arguments, device) for device in (CPU, SECOND)]
        return [self.finish(process)[0] for process in processes]

    def test_generation_gives_the_cpus_answers(self):
        prompts = ["--prompt", "What is a dromil?", "--prompt", "Who?"]
        cpu, card = self.both("generate", self.MODEL, *prompts, "--max-new-tokens", 12, "precision.preset=fp32")
        self.assertGreater(len(cpu), 10)
        self.assertEqual(card, cpu)

    def test_generation_in_bf16_reads_the_cache_by_flash_attention(self):
        arguments = ("generate", self.MODEL, "--prompt", "Who?", "--max-new-tokens", 5)
        report = self.finish(self.start("lorikeet", arguments, SECOND))[2]
        self.assertGreater(report["operators"]["aten::_flash_attention_forward"], 4 * LAYERS)

    def test_evaluation_gives_the_cpus_loss(self):
        rows = self.work / "rows.jsonl"
        rows.write_text("".join((harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)[:20]))
        arguments = ("eval", self.MODEL, "--data", rows, "data.train.format=alpaca", "precision.preset=fp32",
                     "batch.micro_tokens=200")
        processes = [self.start("lorikeet", arguments, device) for device in (CPU, SECOND)]
        outputs = [self.finish(process) for process in processes]
        cpu, card = [json.loads(output[0].splitlines()[-1]) for output in outputs]
        report = outputs[1][2]
        self.assertGreater(report["operators"]["aten::_efficient_attention_forward"], 2 * LAYERS)
        self.assertEqual(report["waits"]["copy to the host"], 1)  # for all batches
        self.assertEqual(card["label_tokens"], cpu["label_tokens"])
        self.assertAlmostEqual(card["loss"], cpu["loss"], delta=FP32_RELATIVE * cpu["loss"])


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2, exit=False).result
    pathlib.Path(sys.argv[4]).write_text("".join(f"{name}\n" for name in sorted(called_operators)))
    sys.exit(not result.wasSuccessful())
