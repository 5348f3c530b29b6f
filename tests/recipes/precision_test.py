"""Precision presets through the real executables: what they say, what they compute, and fp16's overflow."""

import json
import shutil
import sys
import unittest

import harness

FP16 = "precision.preset=fp16"


class Precision(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work

    @classmethod
    def tearDownClass(cls):
        cls.programs.temporary.cleanup()

    def train(self, name, *overrides):
        result = self.programs.train(self.work / name, *overrides)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def steps(self, name):
        return [json.loads(line) for line in (self.work / name / "metrics.jsonl").read_text().splitlines()]

    def losses(self, name):
        return [line["loss"] for line in self.steps(name)]

    def assert_close(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLess(abs(x - y) / y, tolerance)

    def test_presets_are_printed_kept_and_learn_alike(self):
        for preset in ("bf16", "fp32", "fp16"):
            said = self.train(preset, f"precision.preset={preset}")
            kept = json.loads((self.work / preset / "run.json").read_text())["precision"]
            for what, how in kept.items():
                self.assertRegex(said, rf"(?m)^  {what} +{how}$")
            self.assertEqual(kept["compute"], preset)
        # fp16 has 11 significant bits, bf16 8: eight and one units of its last place.
        self.assert_close(self.losses("fp16"), self.losses("fp32"), 4e-3)
        self.assert_close(self.losses("bf16"), self.losses("fp32"), 3e-2)
        self.assertNotEqual(self.losses("fp16"), self.losses("bf16"))
        self.assertEqual({line["loss_scale"] for line in self.steps("fp16")}, {65536})
        self.assertNotIn("loss_scale", self.steps("bf16")[0])

    def test_an_overflow_is_skipped_counted_and_kept_over_a_resume(self):
        short = [FP16, "batch.global=1", "checkpoint.save_every_steps=1", "checkpoint.keep_last=null"]
        self.train("whole", *short, "training.max_steps=12")
        run = self.work / "whole"
        state = run / "checkpoints" / "step_2" / "trainer_state.json"
        for step in range(3, 13):
            folder = run / "checkpoints" / f"step_{step}"
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        # As if it had grown too far: the next steps' gradients overflow.
        kept = json.loads(state.read_text())
        kept["scaler"]["scale"] = 2.0**24
        state.write_text(json.dumps(kept))
        (state.parent / "manifest.json").unlink()  # it would tell that the state was changed
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "finished": False}))
        said = self.train("whole", *short, "training.max_steps=12")
        self.assertIn("resuming after step 2", said)
        self.assertIn("gradients overflowed and the step was skipped", said)
        steps = self.steps("whole")
        self.assertEqual(len(steps), 12)
        self.assertIsNone(steps[2]["grad_norm"])
        self.assertEqual(steps[2]["loss_scale"], 2**24)
        self.assertGreaterEqual(steps[11]["skipped_steps"], 1)
        self.assertEqual(steps[11]["skipped_steps"], sum(line["grad_norm"] is None for line in steps))
        self.assertIsNotNone(steps[11]["grad_norm"])

    def test_parts_can_be_set_alone(self):
        self.train("parts", "precision.adapter=bf16", "precision.base_storage=fp32")
        kept = json.loads((self.work / "parts" / "run.json").read_text())["precision"]
        self.assertEqual((kept["frozen base"], kept["compute"], kept["adapter"], kept["optimizer state"]),
                         ("fp32", "bf16", "bf16", "bf16"))
        self.assertLess(self.losses("parts")[-1], self.losses("parts")[0])
        # A table that is trained whole has bf16 gradients then, too.
        self.train("whole-table", "precision.adapter=bf16", "lora.modules_to_save=[lm_head]")
        self.assertLess(self.losses("whole-table")[-1], self.losses("whole-table")[0])

    def test_a_quantised_base_learns_and_goes_on_after_a_kill_as_if_nothing_had_happened(self):
        for name, described in (("nf4", "nf4 in blocks of 64"), ("fp8", "fp8 (e4m3), a scale for each row")):
            storage, whole = f"precision.base_storage={name}", f"whole_{name}"
            self.train(whole, storage)
            kept = json.loads((self.work / whole / "run.json").read_text())["precision"]
            self.assertEqual((kept["frozen base"], kept["compute"]), ("bf16", "bf16"))
            self.assertIn(described, kept["frozen linear weights"])
            self.assertLess(self.losses(whole)[-1], self.losses(whole)[0])
            killed = self.work / f"killed_{name}"
            process = self.programs.start(killed, storage)
            self.assertTrue(harness.wait_for((killed / "checkpoints" / "step_3").exists))
            harness.stop(process)
            self.train(killed.name, storage)
            self.assertEqual((killed / "adapter_model.safetensors").read_bytes(),
                             (self.work / whole / "adapter_model.safetensors").read_bytes())
            self.assertEqual(harness.metrics(killed), harness.metrics(self.work / whole))
            asked, derived = {}, self.work / f"derived_{name}"
            result = self.programs.verb("adapters", "scale", killed, "1", "--output", derived)
            self.assertEqual(result.returncode, 0, result.stderr)
            for how, settings, adapter in (("as it was", [], killed), ("derived", [], derived), ("named", [storage], killed),
                                           ("plain", ["precision.base_storage=bf16"], killed)):
                result = self.programs.verb("eval", harness.EXAMPLE / "base", "--adapter", adapter, "--data",
                                            harness.EXAMPLE / "heldout.jsonl", *settings)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(f"the base is read in {name}, as the adapter's run had it" in result.stderr, not settings)
                asked[how] = json.loads(result.stdout)["loss"]
            self.assertEqual(asked["as it was"], asked["named"])
            self.assertEqual(asked["as it was"], asked["derived"])
            self.assertNotEqual(asked["plain"], asked["named"])
        # Of one that is derived itself, and a run.
        result = self.programs.verb("adapters", "average", self.work / "derived_nf4", self.work / "whole_fp8", "--output",
                                    self.work / "average")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("whole_fp8' was trained with weights in fp8 and", result.stderr)
        self.assertEqual(json.loads((self.work / "average" / "lorikeet_adapter.json").read_text())["base_storage"], "nf4")

    def test_a_storage_that_a_quantised_checkpoint_does_not_have_is_refused(self):
        base = self.work / "base"
        shutil.copytree(harness.EXAMPLE / "base", base)
        config = json.loads((base / "config.json").read_text())
        four_bits = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
        for settings, has, asked in ((four_bits, "nf4", "bf16"), (four_bits, "nf4", "fp8"), (fp8, "fp8", "nf4")):
            (base / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
            result = self.programs.train(self.work / "refused", f"model.path={base}", f"precision.base_storage={asked}")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"[precision.base_storage] expected null or {has}", result.stderr)
            self.assertIn("unquantised checkpoint", result.stderr)

    def test_another_policy_does_not_go_on_with_a_run(self):
        self.train("changed", "training.max_steps=4")
        result = self.programs.train(self.work / "changed", "training.max_steps=4", "precision.adapter=bf16")
        self.assertEqual(result.returncode, 2)
        self.assertIn("precision", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
