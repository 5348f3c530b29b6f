"""Every verb does what its help says."""

import json
import re
import shutil
import subprocess
import sys
import unittest

import harness


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.base = harness.EXAMPLE / "base"
        cls.heldout = harness.EXAMPLE / "heldout.jsonl"
        cls.adapter = cls.programs.work / "adapter"
        result = cls.programs.train(cls.adapter)
        assert result.returncode == 0, result.stderr

    def ok(self, *arguments, **options):
        result = self.programs.verb(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_each_verb_has_a_help(self):
        for verb in "run ls cp validate config preview tokenize render eval generate merge adapters topo bench".split():
            self.assertIn("Usage", self.ok(verb, "--help"))

    def test_output_that_cannot_be_written_is_an_error(self):
        for verb in (["ls"], ["config", "--markdown"], ["topo", "--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run(
                    [self.programs.folder / "lorikeet", *verb], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
                )
            self.assertEqual(result.returncode, 3, verb)
            self.assertIn("No space left on device", result.stderr)

    def test_validate_refuses_a_precision_that_no_device_has(self):
        config = "quickstart/tiny_lora"
        self.assertEqual(self.programs.verb("validate", config).returncode, 0)
        result = self.programs.verb("validate", config, "precision.preset=bf16", "precision.matmul=tf32")
        self.assertEqual(result.returncode, 2)
        self.assertIn("TF32", result.stderr)

    def test_a_ready_made_config_is_valid_and_can_be_copied_once(self):
        for name in ("quickstart/tiny_lora", "falcon2/11B_lora", "phi4/mini_lora"):
            self.assertEqual(self.ok("validate", name), "valid\n")
        target = self.programs.work / "copy.yaml"
        self.ok("cp", "qwen3/8B_lora", target)
        self.assertEqual(target.read_text(), (harness.ROOT / "recipes/configs/qwen3/8B_lora.yaml").read_text())
        self.assertEqual(self.programs.verb("cp", "qwen3/8B_lora", target).returncode, 2)  # never overwrites
        folder = self.programs.work / "configs"
        folder.mkdir()
        self.assertEqual(self.ok("cp", "qwen3/8B_lora", folder), f"{folder / '8B_lora.yaml'}\n")
        self.assertEqual((folder / "8B_lora.yaml").read_text(), target.read_text())
        absent = self.programs.verb("cp", "qwen3/8B_lora", folder / "absent" / "copy.yaml")
        self.assertEqual(absent.returncode, 2, absent.stderr)
        self.assertIn(f"'{folder / 'absent'}' is no folder; make it first", absent.stderr)

    def test_the_config_reference_in_the_docs_is_the_schemas(self):
        self.assertEqual(self.ok("config", "--markdown"), (harness.ROOT / "docs" / "config.md").read_text())

    def test_the_version_is_cmakes(self):
        version = re.search(r"VERSION (\S+) LANGUAGES", (harness.ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(self.ok("--version").strip(), version)

    def test_tokenize_and_back(self):
        text = json.dumps("The town of Orlel, é €\n")
        ids = self.ok("tokenize", self.base, "--no-specials", stdin=text + "\n")
        self.assertEqual(self.ok("tokenize", self.base, "--decode", stdin=ids), json.dumps(json.loads(text), ensure_ascii=False) + "\n")

    def test_preview_marks_the_answer_alone(self):
        shown = self.ok("preview", self.base, "--data", self.heldout, "--rows", "1")
        trained = [line for line in shown.splitlines() if line.startswith("+ ")]
        self.assertEqual(len(trained), 1)
        self.assertTrue(trained[0].replace("|", "").startswith("+ Chirp!"))
        self.assertTrue(trained[0].endswith("<|end_of_text|>"))

    def test_training_lowers_the_loss(self):
        losses = [json.loads(self.ok("eval", self.base, "--data", self.heldout, *more))["loss"]
                  for more in ([], ["--adapter", self.adapter])]
        self.assertLess(losses[1], 0.6 * losses[0])

    def test_per_token_values_sum_to_the_loss(self):
        *rows, summary = map(json.loads, self.ok("eval", self.base, "--data", self.heldout, "--per-token").splitlines())
        values = [v for row in rows for v in row["nll"]]
        self.assertEqual(len(values), summary["label_tokens"])
        self.assertAlmostEqual(sum(values) / len(values), summary["loss"], delta=2e-3)  # bf16, other packing

    def test_sampling_is_a_function_of_the_seed(self):
        ask = ["generate", self.base, "--prompt", "Tell me", "--temperature", "1", "--max-new-tokens", "12"]
        self.assertEqual(self.ok(*ask, "--seed", "1"), self.ok(*ask, "--seed", "1"))
        self.assertNotEqual(self.ok(*ask, "--seed", "1"), self.ok(*ask, "--seed", "2"))

    def test_a_system_prompt_comes_before_a_question_as_before_a_rows(self):
        rows = self.programs.work / "system.jsonl"
        rows.write_text(json.dumps({"prompt": "Tell me", "completion": "no", "system": "Be brief."}) + "\n")
        ask = ["generate", self.base, "--max-new-tokens", "12", "--temperature", "3"]  # so that all of the text counts
        asked = [self.ok(*ask, *question).splitlines()[1] for question in (
            ["--prompt", "Tell me", "--system", "Be brief."], ["--data", rows], ["--prompt", "Tell me"])]
        self.assertEqual(asked[0], asked[1])
        self.assertNotEqual(asked[0], asked[2])
        for refused, why in ((["--data", rows], "goes with --prompt"),
                             (["--prompt", "Hi", "data.chat_template=none"], "no place for --system")):
            result = self.programs.verb(*ask, *refused, "--system", "Be brief.")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(why, result.stderr)

    def test_a_merged_checkpoint_computes_what_base_and_adapter_do(self):
        merged = self.programs.work / "merged"
        merged.mkdir()  # an empty folder serves as well as none
        report = json.loads(self.ok("merge", self.base, self.adapter, merged))
        self.assertGreater(report["largest_adapter_effect"], 20 * report["largest_logit_change"])
        both = [json.loads(self.ok("eval", *model, "--data", self.heldout, "precision.preset=fp32"))["loss"]
                for model in ([self.base, "--adapter", self.adapter], [merged])]
        self.assertAlmostEqual(both[0], both[1], delta=0.01)  # the merged weights are rounded to bf16
        twice = self.programs.verb("eval", merged, "--adapter", self.adapter, "--data", self.heldout)
        self.assertEqual(twice.returncode, 0, twice.stderr)
        self.assertIn("now it counts twice", twice.stderr)
        once = self.programs.verb("eval", self.base, "--adapter", self.adapter, "--data", self.heldout)
        self.assertNotIn("counts twice", once.stderr)

    def test_an_adapter_on_another_base_than_its_own_is_warned_of(self):
        other = self.programs.work / "other"
        shutil.copytree(self.base, other)
        config = json.loads((other / "config.json").read_text())
        config["rms_norm_eps"] = 1e-3
        (other / "config.json").write_text(json.dumps(config))
        weights = bytearray((other / "model.safetensors").read_bytes())
        header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
        begin, end = max(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__")
        middle = len(weights) - (end - begin) // 2
        weights[middle - 8 : middle + 8] = bytes(16)
        (other / "model.safetensors").write_bytes(weights)
        for base, warned in ((self.base, False), (other, True)):
            asked = self.programs.verb("generate", base, "--adapter", self.adapter, "--prompt", "Hi", "--max-new-tokens", "1")
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertEqual("was trained on other weights" in asked.stderr, warned, asked.stderr)
            begun = self.programs.train(self.programs.work / f"begun-{warned}", f"model.path={base}", f"lora.init={self.adapter}",
                                        "training.max_steps=1", "lr_scheduler.warmup_steps=0")
            self.assertEqual(begun.returncode, 0, begun.stderr)
            self.assertEqual("was trained on other weights" in begun.stderr, warned, begun.stderr)
        self.assertIn("final_norm.eps: ", asked.stderr)

    def test_a_merge_with_added_tokens_is_measured_by_the_same_text_on_both_sides(self):
        output, merged = self.programs.work / "added", self.programs.work / "added-merged"
        result = self.programs.train(output, "model.add_tokens=[HbA1c, troponin]", "training.max_steps=2",
                                     "lr_scheduler.warmup_steps=1")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(self.ok("merge", self.base, output, merged))
        # What rounding to bf16 changes; texts of other tokens would be apart by ten and more.
        self.assertLess(report["largest_logit_change"], 1)

    def test_rows_of_added_tokens_are_never_given_to_other_tokens(self):
        short = ["training.max_steps=2", "lr_scheduler.warmup_steps=1"]
        runs = {}
        for name, tokens in (("one", "[HbA1c, troponin]"), ("other", "[troponin, HbA1c]")):
            runs[name] = self.programs.work / f"tokens-{name}"
            result = self.programs.train(runs[name], f"model.add_tokens={tokens}", *short)
            self.assertEqual(result.returncode, 0, result.stderr)
        init = f"lora.init={runs['one']}"
        trained = "was trained for the token 'HbA1c', and here it is that of the "
        for tokens, now in (("model.add_tokens=[troponin, HbA1c]", "token 'troponin'"),
                            ("model.add_special_tokens=[HbA1c, troponin]", "special token 'HbA1c'")):
            result = self.programs.train(self.programs.work / "tokens-refused", init, tokens, *short)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(trained + now, result.stderr)
            self.assertFalse((self.programs.work / "tokens-refused").exists())
            config = self.programs.work / "config.yaml"
            checked = self.programs.verb("validate", config, init, tokens, *short, "checkpoint.output_dir=x")
            self.assertEqual(checked.returncode, 2, checked.stderr)
            self.assertIn(trained + now, checked.stderr + checked.stdout)
        result = self.programs.train(self.programs.work / "tokens-same", init, "model.add_tokens=[HbA1c, troponin]", *short)
        self.assertEqual(result.returncode, 0, result.stderr)
        averaged = self.programs.work / "tokens-average"
        result = self.programs.verb("adapters", "average", runs["one"], runs["other"], "--output", averaged)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("adapters with added tokens can be averaged where they added the same ones", result.stderr)
        self.assertFalse(averaged.exists())
        self.ok("adapters", "average", runs["one"], self.programs.work / "tokens-same", "--output", averaged)

    def test_answers_that_teach_no_end_are_warned_of(self):
        template = self.programs.work / "endless.jinja"
        template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        rows = self.programs.work / "chats.jsonl"
        rows.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"},
                                                 {"role": "assistant", "content": "Hello"}]}) + "\n")
        steps = ["training.max_steps=1", "lr_scheduler.warmup_steps=0", "batch.global=1"]
        data = [f"data.train.path={rows}", "data.train.format=chat"]
        warning = "a token that ends generation is learnt"
        result = self.programs.train(self.programs.work / "endless", *steps, *data, f"data.chat_template={template}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(warning, result.stderr)
        template.write_text(template.read_text().replace("}}\n", "}}{{ eos_token }}\n"))
        for name, more in (("ending", [*data, f"data.chat_template={template}"]), ("usual", [])):
            result = self.programs.train(self.programs.work / name, *steps, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn(warning, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
