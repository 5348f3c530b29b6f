"""Mixtures of experts as a user meets them: gpt-oss with experts in mxfp4 from training to a merged checkpoint, and what is
said of adapters that PEFT passes over."""

import json
import shutil
import sys
import unittest

import harness
from delta_net import write_lfm2
from mamba import write_granite
from mixture import EXPERTS, write_gemma4, write_gpt_oss, write_shared_mixture

PARAMETERS = "[mlp.experts.gate_up_proj, mlp.experts.down_proj]"
STEPS = ["training.max_steps=4"]


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.gpt_oss = write_gpt_oss(cls.programs.work / "gpt-oss")
        cls.shared = write_shared_mixture(cls.programs.work / "shared")
        cls.gemma4 = write_gemma4(cls.programs.work / "gemma4")
        cls.lfm2 = write_lfm2(cls.programs.work / "lfm2")
        cls.granite = write_granite(cls.programs.work / "granite")

    def train(self, name, model, *overrides, code=0):
        result = self.programs.train(self.programs.work / name, f"model.path={model}", *STEPS, *overrides)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def test_gpt_oss_is_trained_evaluated_used_and_merged_with_its_experts_left_in_mxfp4(self):
        said = self.train("oss", self.gpt_oss)
        self.assertNotIn("warning", said)
        run, merged = self.programs.work / "oss", self.programs.work / "oss merged"
        config = json.loads((run / "adapter_config.json").read_text())
        self.assertEqual(sorted(config["target_modules"]), ["k_proj", "o_proj", "q_proj", "v_proj"])
        result = self.programs.verb("merge", self.gpt_oss, run, merged, "device=cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        before, after = (harness.read_tensors(folder / "model.safetensors") for folder in (self.gpt_oss, merged))
        self.assertEqual(before.keys(), after.keys())
        changed = {name.rsplit(".", 2)[1] for name in before if before[name] != after[name]}
        self.assertEqual(changed, {"q_proj", "k_proj", "v_proj", "o_proj"})
        self.assertEqual(json.loads((merged / "config.json").read_text())["quantization_config"], {"quant_method": "mxfp4"})
        texts = [self.programs.verb("generate", *arguments, "--prompt", "The", "--max-new-tokens", "8", "device=cpu",
                                    "precision.preset=fp32") for arguments in ((self.gpt_oss, "--adapter", run), (merged,))]
        for text in texts:
            self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(texts[0].stdout, texts[1].stdout)

    def test_granite_4_h_is_trained_used_and_merged_with_adapters_on_mamba_layers_and_experts(self):
        parameters = "[block_sparse_moe.experts.gate_up_proj, block_sparse_moe.experts.down_proj]"
        said = self.train("granite all", self.granite)
        self.assertNotIn("warning", said)
        config = json.loads((self.programs.work / "granite all" / "adapter_config.json").read_text())
        self.assertEqual(sorted(config["target_modules"]),
                         ["in_proj", "input_linear", "k_proj", "o_proj", "out_proj", "output_linear", "q_proj", "v_proj"])
        self.train("granite mamba", self.granite, "lora.target_modules=[in_proj, mamba.out_proj]", f"lora.target_parameters={parameters}",
                   "optimizer.lr=1e-2")
        run, merged = self.programs.work / "granite mamba", self.programs.work / "granite merged"
        result = self.programs.verb("merge", self.granite, run, merged, "device=cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        before, after = (harness.read_tensors(folder / "model.safetensors") for folder in (self.granite, merged))
        self.assertEqual(before.keys(), after.keys())
        changed = {name.split(".", 3)[3] for name in before if before[name] != after[name]}
        self.assertEqual(changed, {"mamba.in_proj.weight", "mamba.out_proj.weight", "block_sparse_moe.input_linear.weight",
                                   "block_sparse_moe.output_linear.weight"})
        texts = [self.programs.verb("generate", *arguments, "--prompt", "The", "--max-new-tokens", "8", "device=cpu",
                                    "precision.preset=fp32") for arguments in ((self.granite, "--adapter", run), (merged,))]
        for text in texts:
            self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(texts[0].stdout, texts[1].stdout)

    def test_stacked_experts_are_trained_resumed_used_and_merged_as_numbers(self):
        targets = f"lora.target_parameters={PARAMETERS}"
        self.train("stacked", self.gpt_oss, targets, "checkpoint.save_every_steps=2", "optimizer.lr=1e-2")
        run, merged = self.programs.work / "stacked", self.programs.work / "stacked merged"
        tensors = harness.read_tensors(run / "adapter_model.safetensors")
        experts = "base_model.model.model.layers.0.mlp.experts."
        self.assertEqual(tensors[experts + "base_layer.lora_B.weight"][1], [128, 16 * EXPERTS])
        self.assertEqual(tensors[experts + "lora_A.weight"][1], [16 * EXPERTS, 64])
        # From the checkpoint of step 2 on.
        again = self.programs.work / "stacked again"
        shutil.copytree(run, again)
        shutil.rmtree(again / "checkpoints" / "step_4")
        (again / "adapter_model.safetensors").unlink()
        said = self.train("stacked again", self.gpt_oss, targets, "checkpoint.save_every_steps=2", "optimizer.lr=1e-2")
        self.assertIn("resuming after step 2", said)
        self.assertEqual((again / "adapter_model.safetensors").read_bytes(), (run / "adapter_model.safetensors").read_bytes())
        result = self.programs.verb("merge", self.gpt_oss, run, merged, "device=cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("they are written as plain numbers", result.stderr)
        after = harness.read_tensors(merged / "model.safetensors")
        hidden = json.loads((self.gpt_oss / "config.json").read_text())["hidden_size"]
        self.assertEqual(after["model.layers.0.mlp.experts.gate_up_proj"][:2], ("BF16", [EXPERTS, hidden, 128]))
        self.assertFalse(any(name.endswith(("_blocks", "_scales")) for name in after))
        self.assertNotIn("quantization_config", json.loads((merged / "config.json").read_text()))
        texts = [self.programs.verb("generate", *arguments, "--prompt", "The", "--max-new-tokens", "8", "device=cpu",
                                    "precision.preset=fp32") for arguments in ((self.gpt_oss, "--adapter", run), (merged,))]
        for text in texts:
            self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(texts[0].stdout, texts[1].stdout)
        shown = self.programs.verb("adapters", "show", run, "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        kinds = {kind["name"]: kind["modules"] for kind in json.loads(shown.stdout)["kinds"]}
        layers = len({name.split(".")[4] for name in tensors})
        self.assertEqual(kinds["gate_up_proj"], EXPERTS * layers)

    def test_targets_on_stacked_experts_that_are_not_possible_are_refused(self):
        for model, overrides, expected in (
                (self.gpt_oss, ["lora.target_parameters=[mlp.experts.gate_proj]"],
                 "it has mlp.experts.down_proj, mlp.experts.gate_up_proj"),
                (self.gpt_oss, [f"lora.target_parameters={PARAMETERS}", "lora.dropout=0.1"], "doesn't go with lora.dropout above 0"),
                (self.shared, [f"lora.target_parameters={PARAMETERS}", "lora.target_modules=[q_proj, down_proj]"],
                 "which target_modules names too")):
            said = self.train("impossible", model, *overrides, code=2)
            self.assertIn("lora.target_parameters", said)
            self.assertIn(expected, said)

    def test_gemma4s_mlp_and_experts_are_trained_merged_into_their_stacks_and_decoded(self):
        said = self.train("gemma4 both", self.gemma4, "lora.target_modules=[q_proj, gate_proj, up_proj, down_proj]")
        self.assertIn("experts: 4 a layer, of which a token passes 2, beside an MLP; 48 adapters are on them", said)
        run, merged = self.programs.work / "gemma4 both", self.programs.work / "gemma4 merged"
        result = self.programs.verb("merge", self.gemma4, run, merged, "device=cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        before, after = (harness.read_tensors(folder / "model.safetensors") for folder in (self.gemma4, merged))
        self.assertEqual({name: tensor[1] for name, tensor in before.items()}, {name: tensor[1] for name, tensor in after.items()})
        changed = {name.split(".", 3)[3] for name in before if before[name] != after[name]}
        self.assertEqual(changed, {"self_attn.q_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                                   "experts.gate_up_proj", "experts.down_proj"})
        texts = [self.programs.verb("generate", *arguments, "--prompt", "The", "--max-new-tokens", "8", "device=cpu",
                                    "precision.preset=fp32") for arguments in ((self.gemma4, "--adapter", run), (merged,))]
        for text in texts:
            self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(texts[0].stdout, texts[1].stdout)

    def test_what_gpt_oss_has_not_is_refused(self):
        said = self.train("nf4", self.gpt_oss, "precision.base_storage=nf4", code=2)
        self.assertIn("[precision.base_storage] expected null for", said)
        self.assertIn("(mxfp4, a power of two for each 32)", said)
        said = self.train("experts", self.gpt_oss, "lora.target_modules=[q_proj, gate_proj]", code=2)
        self.assertIn("gate_proj", said)
        self.assertFalse((self.programs.work / "experts").exists())

    def test_adapters_that_peft_passes_over_are_warned_of(self):
        passed_over = "on which PEFT passes over adapters of this family without saying so"
        said = self.train("routed", self.shared, "lora.target_modules=[q_proj, down_proj]")
        self.assertIn(f"lora.target_modules has model.layers.0.mlp.experts.0.down_proj and others {passed_over}", said)
        self.assertNotIn(passed_over, self.train("all", self.shared, "lora.target_modules=all-linear"))
        said = self.train("gemma4 experts", self.gemma4, "lora.target_modules=[q_proj, down_proj]")
        self.assertIn(f"lora.target_modules has model.layers.0.experts.0.down_proj and others {passed_over}", said)
        self.assertNotIn(passed_over, self.train("gemma4 MLP", self.gemma4, "lora.target_modules=[q_proj, mlp.down_proj]"))
        said = self.train("lfm2 experts", self.lfm2, "lora.target_modules=[q_proj, w2]")
        self.assertIn(f"lora.target_modules has model.layers.1.feed_forward.experts.0.w2 and others {passed_over}", said)
        self.assertNotIn(passed_over, self.train("lfm2 all", self.lfm2, "lora.target_modules=all-linear"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
