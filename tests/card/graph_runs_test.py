"""Runs with training.cuda_graphs on the fake card: the bytes of runs without, in a launch a micro-step."""

import json
import pathlib
import sys
import unittest

from card_programs import BOTH, CPU, SECOND, CardPrograms, harness
from mixture import write_mixture

ROWS, LENGTH, STEPS = 16, 48, 4
PASSES = 2 * STEPS  # two micro-batches of four rows a step


class Graphs(CardPrograms):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = [[3 + (row * 31 + i * 7) % 90 for i in range(LENGTH)] for row in range(ROWS)]
        cls.rows = cls.work / "rows.jsonl"
        cls.rows.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))

    def settings(self, *more):
        return [f"data.train.path={self.rows}", "data.train.format=tokens", f"data.max_seq_len={LENGTH}",
                f"batch.micro_tokens={4 * LENGTH}", f"training.max_steps={STEPS}", "lr_scheduler.name=constant",
                "lr_scheduler.warmup_steps=1", "training.deterministic=true", *more]

    def start_run(self, name, *more, device=SECOND, **options):
        return self.start_training(name, device, *self.settings(*more), **options)

    def assert_same_bytes(self, name, other):
        for file in ("adapter_model.safetensors", f"checkpoints/step_{STEPS}/optimizer.safetensors"):
            self.assertEqual((self.work / name / file).read_bytes(), (self.work / other / file).read_bytes(), file)

    def test_the_bytes_of_a_run_without_and_a_launch_for_each_micro_step(self):
        usual, graphed = self.start_run("usual"), self.start_run("graphed", "training.cuda_graphs=true")
        without = self.finish(usual)[2]
        _, said, report = self.finish(graphed)
        self.assertIn(f"CUDA graphs: {PASSES - 1} of {PASSES} micro-steps were launches of 1 graph", said)
        self.assertEqual((without["graph_launches"], report["graph_launches"]), (0, PASSES - 1))
        self.assert_same_bytes("usual", "graphed")
        self.assertEqual(self.losses("usual"), self.losses("graphed"))
        # Forward and backward were asked of the host twice: by the first micro-step, and by the one that was recorded.
        for name in ("aten::_flash_attention_forward", "aten::_flash_attention_backward"):
            self.assertEqual(report["operators"][name] * PASSES, without["operators"][name] * 2, name)

    def test_stopped_and_resumed_with_validation_between(self):
        validated = ("data.validation.fraction=0.25", "data.validation.every_steps=1", "batch.global=4",
                     "training.cuda_graphs=true")
        self.finish(self.start_run("whole", *validated))
        self.finish(self.start_run("halves", *validated, f"training.max_steps={STEPS // 2}"))
        self.finish(self.start_run("halves", *validated))
        self.assert_same_bytes("whole", "halves")

    def test_what_is_stored_otherwise(self):
        for name, settings in {"nf4": ["precision.base_storage=nf4"], "fp32": ["precision.preset=fp32"],
                               "recomputed": ["training.activation_checkpointing=full", "precision.adapter=bf16"],
                               "head": ["lora.modules_to_save=[embed_tokens,lm_head]"]}.items():
            with self.subTest(name):
                short = (*settings, "training.max_steps=2", "checkpoint.save_every_steps=2")
                usual = self.start_run(name, *short)
                graphed = self.start_run(f"{name}-graphed", *short, "training.cuda_graphs=true")
                self.finish(usual)
                self.assertEqual(self.finish(graphed)[2]["graph_launches"], 3)
                self.assertEqual((self.work / name / "adapter_model.safetensors").read_bytes(),
                                 (self.work / f"{name}-graphed" / "adapter_model.safetensors").read_bytes())

    def test_experts_that_are_computed_at_once(self):
        base = f"model.path={write_mixture(self.work / 'mixture')}"
        on_experts = "lora.target_modules=[q_proj, w1, w2, w3]"
        short = (base, "training.max_steps=2", "checkpoint.save_every_steps=2")
        for name, settings in {"adapted": [on_experts], "frozen-nf4": ["precision.base_storage=nf4"]}.items():
            with self.subTest(name):
                usual = self.start_run(name, *short, *settings)
                graphed = self.start_run(f"{name}-graphed", *short, *settings, "training.cuda_graphs=true")
                self.finish(usual)
                self.assertEqual(self.finish(graphed)[2]["graph_launches"], 3)
                self.assertEqual((self.work / name / "adapter_model.safetensors").read_bytes(),
                                 (self.work / f"{name}-graphed" / "adapter_model.safetensors").read_bytes())
        # With this rank each expert's products are launched by themselves.
        _, said, report = self.finish(self.start_run("waits", *short, on_experts, "lora.rank=4", "training.cuda_graphs=true"))
        self.assertEqual(report["graph_launches"], 0)
        self.assertEqual(said.count("the host has to read how many tokens each expert has"), 1, said)

    def test_two_cards_record_all_but_the_pass_that_sums_gradients(self):
        # Four micro-batches, of which each card has two.
        arguments = ["run", "--nproc", 2, "lora_finetune_distributed", "--config", self.work / "config.yaml",
                     *self.settings("training.cuda_graphs=true", "precision.preset=fp32", "training.deterministic=false"),
                     f"batch.micro_tokens={2 * LENGTH}"]
        output = f"checkpoint.output_dir={self.work}"
        reports = self.finish(self.start("lorikeet", [*arguments, f"{output}/two"], BOTH), cards=2)[2]
        for report in reports:
            self.assertEqual(report["graph_launches"], STEPS - 1)
        self.finish(self.start_run("one", "precision.preset=fp32", "training.deterministic=false"))
        for one, two in zip(self.losses("one"), self.losses("two")):
            self.assertLess(abs(one - two), 1e-5 * one)

    def test_micro_batches_by_a_trial(self):
        # All eight rows of a step in one.
        _, said, report = self.finish(self.start_run("auto", "training.cuda_graphs=true", "batch.micro_tokens=auto"))
        self.assertEqual(report["graph_launches"], STEPS - 1, said)
        parts = json.loads((self.work / "auto" / "run.json").read_text())["expected_memory_bytes"]
        self.assertEqual(parts["graphs"], parts["activations"] + parts["logits"] + parts["workspace"])

    def test_what_a_graph_cannot_follow_is_refused_before_anything_is_read(self):
        for settings, said in {
                ("lora.dropout=0.1",): "training.cuda_graphs: expected to be false with lora.dropout, whose masks differ",
                ("lora.use_dora=true",): "training.cuda_graphs: expected to be false with lora.use_dora",
                ("training.offload=auto",): "expected training.offload=none"}.items():
            process = self.start_run("refused", "training.cuda_graphs=true", *settings)
            self.assertIn(said, self.finish(process, code=2, cards=0)[1])
        process = self.start_run("refused", "training.cuda_graphs=true", "precision.matmul=fp8", "precision.base_storage=fp8",
                                 capability=89)
        self.assertIn("products in fp8 may leave the stream of a recording", self.finish(process, code=2, cards=0)[1])
        process = self.start_run("refused", "training.cuda_graphs=true", device=CPU)
        self.assertIn("expected to be false with device=cpu", self.finish(process, code=2)[1])
        self.assertFalse((self.work / "refused").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
