"""What a newcomer types first works, or is answered with what to type instead."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import harness

HUB_ID = "meta-llama/Llama-3.2-1B"
READY_MADE = "quickstart/tiny_lora"


class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(os.path.abspath(sys.argv[1]))
        cls.work = cls.programs.work
        cls.base = harness.EXAMPLE / "base"
        cls.rows = harness.EXAMPLE / "train.jsonl"

    def run_program(self, name, *arguments, cwd=None, **environment):
        return subprocess.run(
            [str(self.programs.folder / name), *map(str, arguments)], env={**harness.ENVIRONMENT, **environment}, cwd=cwd,
            capture_output=True, text=True, timeout=120, check=False,
        )

    def lorikeet(self, *arguments, **options):
        return self.run_program("lorikeet", *arguments, **options)

    def assert_refused(self, result, *says, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(sum(line.startswith("error: ") for line in result.stderr.splitlines()), 1, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)

    def assert_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_an_unknown_verb_is_answered_with_the_one_that_was_meant(self):
        for word, meant in (("trian", "run"), ("evalute", "eval"), ("lora_finetune_distributed", "run lora_finetune_distributed")):
            self.assert_refused(self.lorikeet(word, "--config", "x.yaml"), f"unknown verb '{word}' (did you mean '{meant}'?)",
                                "run, ls, cp, validate")
        result = self.lorikeet("zzzzzzzz")
        self.assert_refused(result, "unknown verb 'zzzzzzzz'; the verbs of `lorikeet` are run, ls")
        self.assertNotIn(", probe", result.stderr)  # not for people
        self.assert_refused(self.lorikeet("bench", "scale"), "unknown verb 'scale'", "the verbs of `bench` are scaling, compare")
        self.assert_refused(self.lorikeet(), "expected a verb", "run, ls")

    def test_an_unknown_option_is_named_before_an_argument_that_is_missing(self):
        for words in (["plan"], ["run"], ["cp"], ["eval"], ["merge"], ["bench", "scaling"], ["adapters", "show"], []):
            self.assert_refused(self.lorikeet(*words, "--bogus"), "not expected: --bogus",
                                f"`{' '.join(['lorikeet', *words])} --help`")
        for recipe in ("lora_finetune_single_device", "lora_finetune_distributed"):
            self.assert_refused(self.run_program(recipe, "--bogus"), "not expected: --bogus")
        self.assert_refused(self.lorikeet("plan"), "config is required")
        self.assert_refused(self.lorikeet("plan", "--"), "config is required")

    def test_cp_writes_to_stdout_for_a_dash_and_refuses_a_link_to_itself(self):
        there = self.work / "copies"
        there.mkdir()
        copy = self.assert_ok(self.lorikeet("cp", READY_MADE, "-", cwd=there))
        self.assertEqual(copy, (harness.ROOT / "recipes" / "configs" / f"{READY_MADE}.yaml").read_text())
        (there / "loop").symlink_to("loop")
        for words in (["loop"], ["loop", "--force"], ["loop/a.yaml"]):
            self.assert_refused(self.lorikeet("cp", READY_MADE, *words, cwd=there), "[cp] expected a file that can be written", "symbolic links")
        self.assertEqual([path.name for path in there.iterdir()], ["loop"])

    def test_a_hub_id_in_the_place_of_a_folder_gets_the_same_answer_everywhere(self):
        says = (f"there is no folder '{HUB_ID}'", f"hub:{HUB_ID}")
        model, data = HUB_ID, ("--data", self.rows)
        config = self.work / "config.yaml"
        for command in (("preview", model, *data), ("tokenize", model), ("render", model), ("eval", model, *data), ("generate", model, *data),
                        ("eval", model, *data, "--adapter", self.work), ("merge", model, self.work, self.work / "merged"),
                        ("plan", config, f"model.path={model}"), ("validate", config, f"model.path={model}"),
                        ("bench", "scaling", config, f"model.path={model}", "--devices", "1", "--synthetic", "2x8")):
            with self.subTest(command[0]):
                self.assert_refused(self.lorikeet(*command), *says)

    def test_every_program_takes_the_name_of_a_ready_made_config(self):
        override = "model.path=not/there"
        for result in (self.run_program("lora_finetune_single_device", "--config", READY_MADE, override, cwd=self.work),
                       self.run_program("lora_finetune_distributed", "--config", READY_MADE, override, cwd=self.work),
                       *(self.lorikeet(verb, READY_MADE, override, cwd=self.work) for verb in ("validate", "plan"))):
            self.assert_refused(result, "there is no folder 'not/there'")
        self.assertIn("max_seq_len: 256", self.assert_ok(self.lorikeet("config", READY_MADE)))
        self.assertLess(self.lorikeet("doctor", READY_MADE, "device=cpu", "--quick").returncode, 2)
        self.assert_refused(self.run_program("lora_finetune_single_device", "--config", "quickstart/tiny"),
                            f"did you mean '{READY_MADE}'?")

    def test_a_tilde_is_the_home_folder_in_settings_and_arguments(self):
        home = self.work / "home"
        home.mkdir()
        os.symlink(self.base, home / "base")
        shutil.copy(self.rows, home / "rows.jsonl")
        (home / "mine.yaml").write_text("model: { path: ~/base }\ndata: { train: { path: ~/rows.jsonl } }\n")
        self.assert_ok(self.lorikeet("validate", "~/mine.yaml", HOME=str(home)))
        self.assertIn(f"path: {home}/base", self.assert_ok(self.lorikeet("config", "~/mine.yaml", HOME=str(home))))
        self.assert_ok(self.lorikeet("preview", "~/base", "--data=~/rows.jsonl", HOME=str(home)))
        self.assert_refused(self.lorikeet("preview", "~/base", "--data=~/rows.jsonl", HOME=""), "HOME")

    def test_a_program_for_one_device_that_several_processes_run_says_so(self):
        def said(**environment):
            return self.run_program("lora_finetune_single_device", "--config", self.work / "config.yaml", "model.path=nowhere", **environment).stderr

        self.assertIn("warning: WORLD_SIZE is 2, but this program trains alone", said(RANK="1", WORLD_SIZE="2"))
        self.assertNotIn("WORLD_SIZE", said(RANK="0", WORLD_SIZE="1") + said())

    def test_validate_checks_what_the_command_line_and_the_file_name(self):
        config = self.work / "config.yaml"
        result = self.lorikeet("validate", config)
        self.assertEqual(self.assert_ok(result), "valid\n")
        self.assertRegex(result.stderr, r"^not checked: the weights' values, every row of the data \(some were tried\), checkpoint\.output_dir, memory")
        self.assert_refused(
            self.lorikeet("validate", config, "model.path=nowhere", "data.train.path=no/rows.jsonl", "data.validation.path=no/held.jsonl",
                          "lora.init=no/adapter", "data.chat_template=lama3", "device=cuda:99"),
            "6 problems", "there is no folder 'nowhere'", "no/rows.jsonl", "no/held.jsonl", "no/adapter", "data.chat_template", "cuda:99")
        several = self.lorikeet("validate", config, "model.path=nowhere", "lora.rank=0", "data.train.path=no/rows.jsonl", "data.chat_template=lama3")
        self.assert_refused(several, "[validate] 4 problems", "lora.rank: expected an integer", "there is no folder 'nowhere'", "no/rows.jsonl", "'lama3'")
        self.assert_refused(self.lorikeet("validate", config, "model.path=null", "data.train.format=[1]"), "[config] 2 problems in ",
                            "model.path: expected a folder", "data.train.format: expected one of")  # and nothing of a model '' or found formats
        self.assert_refused(self.lorikeet("validate", config, "data.train.columns=[a]", "lora.target_modules=q_porj,v_proj"),
                            "[validate] 2 problems", "data.train.columns: expected", "'q_porj' matches no module")
        self.assert_refused(self.lorikeet("validate", config, "lora.target_modules=q_porj,v_proj"),
                            "error: [lora.target_modules] 'q_porj' matches no module")
        self.assert_refused(self.lorikeet("validate", config, "lora.target_modules=q_porj,v_proj", "data.train.columns.output=anwser"),
                            "2 problems", "'q_porj' matches no module", "anwser")
        broken = self.work / "broken.jsonl"
        broken.write_text('{"instruction": "a"}\n')
        self.assert_refused(self.lorikeet("validate", config, "precision.preset=tf32", f"data.train.path={broken}", "~data.train.format"),
                            "2 problems", "a CPU has no TF32", "broken.jsonl")
        mixed = self.work / "mixed"
        mixed.mkdir()
        (mixed / "a.jsonl").write_text('{"instruction": "a", "output": "b"}\n' * 40)
        (mixed / "b.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 40)
        self.assert_refused(self.lorikeet("validate", config, f"data.train.path={mixed}", "~data.train.format"),
                            " of b.jsonl: expected key 'instruction'")
        self.assert_refused(self.lorikeet("validate", config, "data.train.prompt=Say {instructoin}", "data.train.completion={output}",
                                          "~data.train.format"), "'instructoin'")
        self.assert_refused(self.lorikeet("validate", config, "data.chat_template=llama3"), "<|start_header_id|>")
        own = self.work / "own.yaml"
        own.write_text(config.read_text().replace(str(self.rows), "missing.jsonl"))
        self.assert_refused(self.lorikeet("validate", own), "missing.jsonl")

    def test_validate_refuses_what_a_run_would_refuse_before_its_first_step(self):
        config = self.work / "config.yaml"
        few = self.work / "few.jsonl"
        few.write_text("".join(self.rows.read_text().splitlines(keepends=True)[:8]))
        for overrides, says in ((["training.max_steps=3", "metrics.profile_steps=[99]"], "from 1 to 3"),
                                ([f"data.train.path={few}", "batch.global=8", "training.max_steps=null", "training.epochs=2", "lr_scheduler.warmup_ratio=null",
                                  "lr_scheduler.warmup_steps=2"], "than the run's 2 steps"),
                                (["lora.init=pissa", "lora.rank=1000"], "rank of at most"),
                                ([f"data.train.path={few}", "data.max_seq_len=8", "data.overlong=drop"], "no row of few.jsonl can be trained on"),
                                ([f"data.train.path={few}", "data.train.where.min_tokens=250"], "no example is left")):
            with self.subTest(says):
                self.assert_refused(self.lorikeet("validate", config, *overrides), says)
                trained = self.programs.train(self.work / "refused", *overrides)
                self.assertEqual(trained.returncode, 2, trained.stderr)
                self.assertIn(says, trained.stderr)
        self.assert_refused(self.lorikeet("plan", config, "training.max_steps=3", "metrics.profile_steps=[99]"), "from 1 to 3")

    def test_validate_warns_as_a_run_does(self):
        config = self.work / "config.yaml"
        chats = self.work / "chats.jsonl"
        call = {"type": "function", "function": {"name": "weather", "arguments": {}}}
        chats.write_text(json.dumps({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "tool_calls": [call]}]}) + "\n")
        silent = self.work / "silent.jinja"
        silent.write_text("{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}")
        overrides = [f"data.train.path={chats}", "~data.train.format", f"data.chat_template={silent}", "data.max_seq_len=600"]
        result = self.lorikeet("validate", config, *overrides)
        self.assertEqual(self.assert_ok(result), "valid\n")
        run = self.programs.train(self.work / "warned", *overrides)
        self.assert_ok(run)
        for warning in ("data.max_seq_len is 600, but the model was made for 512 positions", "of 1 of 1 row the chat template leaves something out",
                        "chats.jsonl: in no example (1 example looked at) a token that ends generation is learnt"):
            for said in (result.stderr, run.stderr):
                self.assertTrue(any(line.startswith("warning: ") and warning in line for line in said.splitlines()), said)

    def test_validate_takes_validation_rows_that_a_run_takes(self):
        short = self.work / "short.jsonl"
        short.write_text('{"instruction": "a", "output": "b"}\n' * 3)
        overrides = ["data.train.where.min_tokens=20", f"data.validation.path={short}", "training.max_steps=3"]
        self.assert_ok(self.lorikeet("validate", self.work / "config.yaml", *overrides))
        self.assert_ok(self.programs.train(self.work / "short", *overrides))

    def test_validate_looks_at_a_mixture_as_at_one_file(self):
        config = self.work / "mixture.yaml"
        both = f"train: {{ sources: [{{ path: {self.rows} }}, {{ path: {self.rows} }}] }}"
        text = (self.work / "config.yaml").read_text()
        config.write_text(text.replace(text[text.index("train: {"):text.index(", max_seq_len")], both))
        self.assert_refused(self.lorikeet("validate", config, "training.max_steps=3", "metrics.profile_steps=[99]"), "from 1 to 3")
        result = self.lorikeet("validate", config, "data.max_seq_len=600")
        self.assert_ok(result)
        self.assertIn("made for 512 positions", result.stderr)

    def test_settings_that_a_verb_does_not_read_are_refused_with_those_that_it_reads(self):
        rows = self.work / "records"
        rows.mkdir()
        (rows / "train.jsonl").write_text('{"question": "a", "answer": "b"}\n')
        compute = ["device=cpu", "precision.preset=fp32", "precision.base_storage=fp32", "precision.compute=fp32", "precision.adapter=fp32",
                   "training.deterministic=true"]
        template = ["data.chat_template=alpaca", "data.template_date=2026-01-01"]
        records = ["data.train.format=instruct", "data.train.columns.prompt=question", "data.train.columns={prompt: question, completion: answer}",
                   "data.train.limit=1", "data.train.split=train"]
        examples = [*template, *records, "data.train.remove_duplicates=true", "data.train.where.max_tokens=200", "data.max_seq_len=256",
                    "data.overlong=drop", "data.train_on=last"]
        data = ["--data", rows]
        accepted = {("eval", self.base, *data): [*compute, *examples, "data.packing=false", "batch.micro=1", "batch.micro_tokens=64"],
                    ("generate", self.base, "--prompt", "a", "--max-new-tokens", "1"): compute + template,
                    ("generate", self.base, *data, "--max-new-tokens", "1"): compute + template + records,
                    ("merge", self.base, self.work / "no-adapter", self.work / "out"): ["device=cpu"],
                    ("preview", self.base, *data): [*examples, "model.add_tokens=[HbA1c]"]}
        refused = ["lora.rank=8", "optimizer.lr=1", "model.path=x", "data.shuffle=false", "data.train.path=x", "data.cache_dir=x"]
        for words, overrides in accepted.items():
            with self.subTest(words[0]):
                result = self.lorikeet(*words, *overrides)
                if words[0] == "merge":
                    self.assert_refused(result, "no-adapter")  # it came to the adapter
                else:
                    self.assert_ok(result)
                for other in refused:
                    result = self.lorikeet(*words, other)
                    name = other.split("=")[0]
                    self.assert_refused(result, f"[command line] expected settings that `lorikeet {words[0]}", f"got {name}, which", "it reads ")
                    read = result.stderr[result.stderr.index("it reads "):]
                    for override in overrides:
                        setting = re.sub(r"^(data.train.columns|data.train.where)\..*", r"\1", override.split("=")[0])
                        self.assertIn(setting, read)
        self.assert_refused(self.lorikeet("merge", self.base, "x", "y", "precision.preset=fp32", "batch.global=1"), "got precision.preset, batch.global, which")
        self.assert_refused(self.lorikeet("generate", self.base, "--prompt", "a", *records[:1]), "got data.train.format")
        self.assert_refused(self.lorikeet("eval", self.base, *data, "lora.rnak=8"), "did you mean 'lora.rank'?")

    def test_options_that_would_change_nothing_are_refused(self):
        ask = ("generate", self.base, "--prompt", "a", "--max-new-tokens", "1")
        self.assert_refused(self.lorikeet("eval", self.base, "--data", self.rows, "--max-new-tokens", "3"), "--max-new-tokens requires --exact-match")
        self.assert_refused(self.lorikeet(*ask, "--limit", "3"), "--limit requires --data")
        for option in ("--top-p", "--seed"):
            self.assert_refused(self.lorikeet(*ask, option, "1"), f"{option} requires --temperature")
            self.assert_ok(self.lorikeet(*ask, option, "1", "--temperature", "1"))

    def test_a_file_of_rows_that_isnt_there_is_named_with_its_setting(self):
        for setting in ("data.train.path", "data.validation.path"):
            for said in (self.lorikeet("validate", self.work / "config.yaml", f"{setting}=no.jsonl").stderr,
                         self.programs.train(self.work / "missing", f"{setting}=no.jsonl").stderr):
                self.assertIn(f"error: [{setting}] expected a file, a folder or a pattern of files, got 'no.jsonl'", said)

    def test_rows_of_another_format_than_the_configured_one_are_said_before_the_template(self):
        self.assert_refused(self.lorikeet("validate", self.work / "config.yaml", "data.train.format=chat"), "'messages'")
        swapped = ["~data.train.format", "data.train.columns.ask=prompt", "data.train.columns.reply=completion"]
        rows = self.work / "swapped.jsonl"
        rows.write_text('{"ask": "a", "reply": "b"}\n')
        self.assert_refused(self.lorikeet("validate", self.work / "config.yaml", f"data.train.path={rows}", *swapped),
                            "write the format's field first, data.train.columns.prompt=ask")

    def test_validate_lets_a_ready_made_configs_placeholders_be_and_says_so(self):
        copy = self.work / "copy.yaml"
        self.assert_ok(self.lorikeet("cp", "llama3_2/1B_lora", copy))
        for name in ("llama3_2/1B_lora", copy):
            result = self.lorikeet("validate", name, cwd=self.work)
            self.assertEqual(self.assert_ok(result), "valid\n")
            for unchecked in ("model.path (a ready-made config's 'models/Llama-3.2-1B-Instruct'", "data.train.path (", "lora.target_modules",
                              "the device that 'auto' will choose"):
                self.assertIn(unchecked, result.stderr)
        self.assert_refused(self.lorikeet("validate", copy, "model.path=models/Llama-3.2-1B-Instruct", cwd=self.work), "hub:PUBLISHER/Llama-3.2-1B-Instruct")
        result = self.lorikeet("validate", copy, f"model.path={self.base}", f"data.train.path={self.rows}")
        self.assert_ok(result)
        self.assertNotIn("model.path", result.stderr)

    def test_a_recipe_that_is_not_there_is_named_before_anything_starts(self):
        lonely = self.work / "build" / "apps"
        lonely.mkdir(parents=True)
        shutil.copy(self.programs.folder / "lorikeet", lonely)
        (self.work / "build" / "CMakeCache.txt").touch()
        program = lonely / "lora_finetune_distributed"
        command = ["run", "--nproc", "2", "lora_finetune_distributed", "--config", str(self.work / "config.yaml")]

        def start(words):
            return subprocess.run([str(lonely / "lorikeet"), *words], env=harness.ENVIRONMENT, capture_output=True, text=True,
                                  timeout=60, check=False)

        says = (f"can't start lora_finetune_distributed: '{program}': No such file or directory",
                f"cmake --build {self.work / 'build'} --target lora_finetune_distributed")
        self.assert_refused(start(command), *says, code=3)
        self.assert_refused(start([command[0], *command[3:]]), *says, code=3)
        program.touch()
        self.assert_refused(start(command), "Permission denied", code=3)
        (self.work / "build" / "CMakeCache.txt").unlink()
        self.assert_refused(start(command), "it belongs beside `lorikeet`", code=3)

    def test_a_program_that_was_copied_alone_says_where_it_looked_for_configs_and_runs_ones_own(self):
        alone = self.work / "alone" / "bin"
        alone.mkdir(parents=True)
        for name in ("lorikeet", "lora_finetune_single_device"):
            shutil.copy(self.programs.folder / name, alone)

        def start(*words):
            return subprocess.run([str(alone / words[0]), *map(str, words[1:])], env=harness.ENVIRONMENT, capture_output=True,
                                  text=True, timeout=60, check=False)

        looked = (f"neither in '{self.work}/share/lorikeet/recipes/configs' nor in '{self.work.parent}/recipes/configs'",
                  "give the path of a config file")
        named = "quickstart/tiny_lora"
        for words in (["lorikeet", "validate", named], ["lorikeet", "plan", named], ["lorikeet", "cp", named, self.work / "c.yaml"],
                      ["lora_finetune_single_device", "--config", named]):
            self.assert_refused(start(*words), f"found no file '{named}' and no ready-made configs", *looked, code=3)
        self.assert_refused(start("lorikeet", "ls"), "found no ready-made configs", *looked, code=3)
        own = self.work / "config.yaml"
        self.assertEqual(self.assert_ok(start("lorikeet", "validate", own)), "valid\n")
        self.assert_ok(start("lorikeet", "plan", own))
        self.assert_refused(start("lorikeet", "plan", own, "model.path=no/Qwen3-8B"), "no/Qwen3-8B",
                            "copied without the ready-made configs")

    def test_quickstart_builds_every_program_that_the_readme_uses(self):
        readme = (harness.ROOT / "README.md").read_text()
        built = re.search(r"^build release (.+)$", (harness.ROOT / "scripts" / "quickstart").read_text(), re.M).group(1).split()
        self.assertEqual(set(re.findall(r"\blora_finetune_\w+|\blorikeet\b", readme)), set(built))

    def test_colours_are_for_terminals_and_no_color_turns_them_off(self):
        command = [str(self.programs.folder / "lorikeet"), "preview", str(self.base), "--data", str(self.rows), "--rows", "1"]
        for value, coloured in ((None, True), ("", True), ("1", False)):
            prefix = ["env", "-u", "NO_COLOR"] if value is None else ["env", f"NO_COLOR={value}"]
            code, seen = harness.on_terminal([*prefix, *command])
            self.assertEqual(code, 0, seen)
            self.assertEqual("\x1b[" in seen, coloured, value)
            self.assertEqual("|" in seen.split("+ ")[1].replace("<|end_of_text|>", ""), not coloured)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
