"""The chat template that an adapter was trained with goes with it: to eval and generate, to transformers, into merges."""

import json
import re
import shutil
import sys
import unittest

import harness

BASE = harness.EXAMPLE / "base"
HELDOUT = harness.EXAMPLE / "heldout.jsonl"
# A number that doesn't survive being read as a double and written again.
MODEL_MAX_LENGTH = '"model_max_length": 1000000000000000019884624838656'


def published_llama2():
    """Llama-2-chat's own template, as the goldens have it."""
    for line in (harness.ROOT / "tests" / "text" / "chat_golden.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("template") == "Llama-2-chat":
            return row["source"]
    raise AssertionError("no Llama-2-chat among the goldens")


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.rows = cls.work / "few.jsonl"
        cls.rows.write_text("".join(HELDOUT.read_text().splitlines(keepends=True)[:12]))
        cls.plain = cls.train(cls, "plain", "data.chat_template=plain")

    def train(self, name, *overrides):
        output = self.work / name
        result = self.programs.train(output, "training.max_steps=3", *overrides)
        assert result.returncode == 0, result.stderr
        return output

    def base(self, name, **files):
        """A copy of the base with some files written."""
        folder = self.work / name
        shutil.copytree(BASE, folder)
        for file, text in files.items():
            (folder / file.replace("__", ".")).write_text(text)
        return folder

    def eval(self, adapter, *overrides):
        arguments = ["eval", BASE, "--data", self.rows, *(["--adapter", adapter] if adapter else []), *overrides]
        result = self.programs.verb(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["loss"], result.stderr

    def config(self, folder):
        return json.loads((folder / "tokenizer_config.json").read_text())

    def test_a_run_from_an_adapter_of_another_template_is_warned_of_once_and_named(self):
        published = published_llama2()
        jinja = self.base("with-llama2", chat_template__jinja=published)
        by_source = self.train("by-source", f"model.path={jinja}")
        by_default = self.train("by-default")
        for init, name, more in ((self.plain, "plain", ["data.chat_template=alpaca"]), (self.plain / "checkpoints" / "step_3", "plain", []),
                                 (by_default, "alpaca", ["data.chat_template=plain"]), (by_source, "", [])):
            start = [f"lora.init={init}", *more]
            old = name or str(by_source)
            for result in (self.programs.train(self.work / "warned", "training.max_steps=1", "lr_scheduler.warmup_steps=0",
                                               "checkpoint.overwrite=true", "checkpoint.resume=never", *start),
                           self.programs.verb("validate", self.work / "config.yaml", *start)):
                self.assertEqual(result.returncode, 0, result.stderr)
                said = re.findall(r"^warning: \[lora.init\] '(.*)' was trained with the chat template (?:of )?'?(.*?)'?, and this run "
                                  r"trains with (.*?):.*data.chat_template=(\S+)", result.stderr, re.M)
                now = more[0].split("=")[1] if more else "alpaca"
                self.assertEqual(said, [(str(init), old, now, old)], result.stderr)
        for init, more in ((self.plain, ["data.chat_template=plain"]), (by_default, []), (by_default, ["data.chat_template=alpaca"]),
                           (by_source, [f"model.path={jinja}"]), (by_source, [f"data.chat_template={by_source}"]),
                           (by_source, ["data.chat_template=llama2"])):
            result = self.programs.verb("validate", self.work / "config.yaml", f"lora.init={init}", *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("chat template", result.stderr)

    def test_eval_uses_the_adapters_template_and_says_so(self):
        own, log = self.eval(self.plain)
        self.assertIn(f"chat template: plain, which the adapter was trained with ({self.plain})", log)
        self.assertNotIn("warning", log)
        same, log = self.eval(self.plain, "data.chat_template=plain")
        self.assertEqual(own, same)
        self.assertNotIn("warning", log)
        other, log = self.eval(self.plain, "data.chat_template=alpaca")
        self.assertNotEqual(own, other)
        self.assertIn("warning: data.chat_template is alpaca, but the adapter was trained with plain", log)
        _, log = self.eval(None)
        self.assertIn("chat template: alpaca (the default", log)

    def test_a_checkpoint_of_a_run_is_asked_in_the_runs_template(self):
        _, log = self.eval(self.plain / "checkpoints" / "step_3")
        self.assertIn("chat template: plain, which the adapter was trained with", log)

    def test_generate_asks_in_the_adapters_template(self):
        ask = ["generate", BASE, "--prompt", "Who lives in Orlel?", "--max-new-tokens", "3"]
        own = self.programs.verb(*ask, "--adapter", self.plain)
        self.assertIn("chat template: plain, which the adapter was trained with", own.stderr)
        named = self.programs.verb(*ask, "--adapter", self.plain, "data.chat_template=plain")
        self.assertEqual((own.returncode, own.stdout), (0, named.stdout))
        bare = self.programs.verb(*ask, "--adapter", self.plain, "data.chat_template=none")
        self.assertIn("data.chat_template is none, but the adapter was trained with plain", bare.stderr)
        self.assertIn("chat template: alpaca", self.programs.verb(*ask).stderr)

    def test_the_output_carries_the_template_as_jinja_and_merges_take_it(self):
        jinja = (self.plain / "chat_template.jinja").read_text()
        self.assertIn("message['content']", jinja)
        self.assertEqual(self.config(self.plain), {**self.config(BASE), "chat_template": jinja})
        merged = self.work / "merged"
        result = self.programs.verb("merge", BASE, self.plain, merged)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((merged / "chat_template.jinja").read_text(), jinja)
        self.assertEqual(self.config(merged)["chat_template"], jinja)
        # What was written is recognised again, as the merged checkpoint's own.
        log = self.programs.verb("eval", merged, "--data", self.rows).stderr
        self.assertIn("chat template: plain (recognised as the checkpoint's own)", log)

    def test_a_merge_leaves_no_other_template_to_processors(self):
        base = self.base("processor", chat_template__json=json.dumps({"chat_template": "{# old #}"}),
                         processor_config__json=json.dumps({"size": 4, "chat_template": "{# older #}"}))
        output = self.train("processor-plain", f"model.path={base}", "data.chat_template=plain")
        merged = self.work / "processor-merged"
        result = self.programs.verb("merge", base, output, merged)
        self.assertEqual(result.returncode, 0, result.stderr)
        jinja = (output / "chat_template.jinja").read_text()
        self.assertEqual((merged / "chat_template.jinja").read_text(), jinja)
        self.assertFalse((merged / "chat_template.json").exists())
        self.assertEqual(json.loads((merged / "processor_config.json").read_text()), {"size": 4, "chat_template": jinja})

    def test_the_template_of_a_processor_is_the_checkpoints_own(self):
        base = self.base("processors-own", chat_template__json=json.dumps({"chat_template": published_llama2()}))
        output = self.train("processors-own-auto", f"model.path={base}", "data.chat_template=auto")
        self.assertEqual((output / "chat_template.jinja").read_text(), published_llama2())

    def test_an_older_output_is_known_by_its_config_alone(self):
        old = self.work / "old"
        shutil.copytree(self.plain, old)
        (old / "chat_template.jinja").unlink()
        shutil.copy(BASE / "tokenizer_config.json", old)
        self.assertEqual(self.eval(old)[0], self.eval(self.plain)[0])

    def test_the_text_of_a_template_file_stays_when_the_file_goes(self):
        source = self.work / "llama2.jinja"
        source.write_text(published_llama2())
        output = self.train("from-file", f"data.chat_template={source}")
        source.unlink()
        self.assertEqual((output / "chat_template.jinja").read_text(), published_llama2())
        self.assertIn("chat template: a Jinja template, which the adapter was trained with", self.eval(output)[1])

    def test_the_checkpoints_own_template_is_kept_as_it_is(self):
        config = (BASE / "tokenizer_config.json").read_text()
        for name, files in (("own-jinja", {"chat_template__jinja": published_llama2() + "\n"}),
                            ("own-config", {"tokenizer_config__json": json.dumps({**json.loads(config), "chat_template": published_llama2()})})):
            base = self.base(name, **files)
            for setting in ("auto", "llama2"):
                output = self.train(f"{name}-{setting}", f"model.path={base}", f"data.chat_template={setting}")
                for file in ("tokenizer_config.json", "chat_template.jinja"):
                    self.assertEqual((output / file).exists(), (base / file).exists())
                    if (base / file).exists():
                        self.assertEqual((output / file).read_bytes(), (base / file).read_bytes())

    def test_calls_and_reasoning_are_trained_on_by_the_checkpoints_own_template(self):
        source = ("{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.role }}: "
                  "{% if m.reasoning_content and loop.last %}({{ m.reasoning_content }}) {% endif %}"
                  "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
                  "{{ m.content or '' }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
        base = self.base("calls", chat_template__jinja=source)
        call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "sing", "arguments": {"n": 2}}}]}
        talk = [{"role": "user", "content": "Sing twice"}, call, {"role": "tool", "content": "chirp chirp"},
                {"role": "assistant", "content": "Done.", "reasoning_content": "both were sung"}]
        rows = self.work / "calls.jsonl"
        rows.write_text((json.dumps({"tools": [{"type": "function", "function": {"name": "sing"}}], "messages": talk}) + "\n") * 8)
        settings = (f"model.path={base}", f"data.train.path={rows}", "data.train.format=auto", "data.chat_template=auto")
        output = self.train("calls-run", *settings)
        self.assertEqual((output / "chat_template.jinja").read_text(), source)
        shown = self.programs.verb("preview", base, "--data", rows, "--rows", "1")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        asked = self.programs.verb("generate", base, "--adapter", output, "--prompt", "Sing", "--max-new-tokens", "2")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertIn("which the adapter was trained with", asked.stderr)
        # Reasoning in an earlier turn is left out there: no exact answer, unless the last one alone is trained on.
        rows.write_text((json.dumps({"messages": [talk[0], talk[3], talk[0], talk[3]]}) + "\n") * 8)
        refused = self.programs.train(self.work / "reasoning", *settings)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("line 1 of calls.jsonl: [chat_template] turn 2", refused.stderr)
        self.assertIn("data.train_on to last", refused.stderr)
        self.assertFalse((self.work / "reasoning" / "adapter_model.safetensors").exists())
        self.train("reasoning-last", *settings, "data.train_on=last")

    def test_the_last_answer_is_asked_for_without_what_the_template_writes_behind_it(self):
        source = ("{% for m in messages %}[{{ m.role }}]\\n{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}\n{% endif %}{% endfor %}"
                  "{% if add_generation_prompt %}[assistant]\\n{% endif %}")
        base, rows = self.base("newline", chat_template__jinja=source), self.work / "two-answers.jsonl"
        talk = [{"role": "user", "content": "What does it eat?"}, {"role": "assistant", "content": "Moss."},
                {"role": "user", "content": "Where does it live?"}, {"role": "assistant", "content": "In the Frost Peaks."}]
        rows.write_text((json.dumps({"messages": talk}) + "\n") * 40)
        settings = [f"model.path={base}", f"data.train.path={rows}", "data.train.format=chat"]
        output = self.work / "two-answers"
        learnt = self.programs.train(output, *settings, "training.max_steps=40", "optimizer.lr=5e-3")
        self.assertEqual(learnt.returncode, 0, learnt.stderr)
        asked = self.programs.verb("generate", base, "--adapter", output, "--data", rows, "--limit", "1", "--max-new-tokens", "20")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertEqual(asked.stdout.split("\n"), ["question: Where does it live?", "answer:   In the Frost Peaks.",
                                                    "expected: In the Frost Peaks.", "", ""])
        scored = self.programs.verb("eval", base, "--adapter", output, "--data", rows, "--exact-match", "--max-new-tokens", "20")
        self.assertEqual(json.loads(scored.stdout.splitlines()[-1])["exact_match"], 1)

    def test_an_end_of_turn_that_does_not_end_generation_is_named(self):
        for name, end, advice in (("text", "!", "that is text and no control token"), ("token", "{{ bos_token }}", "add the id")):
            source = ("{% for m in messages %}[{{ m.role }}]\\n{{ m.content }}{% if m.role == 'assistant' %}" + end + "{% endif %}{% endfor %}"
                      "{% if add_generation_prompt %}[assistant]\\n{% endif %}")
            base, rows = self.base(f"no-end-{name}", chat_template__jinja=source), self.work / "no-end.jsonl"
            rows.write_text((json.dumps({"messages": [{"role": "user", "content": "Sing"}, {"role": "assistant", "content": "Chirp"}]}) + "\n") * 8)
            run = self.programs.train(self.work / f"no-end-{name}-run", f"model.path={base}", f"data.train.path={rows}",
                                      "data.train.format=chat", "training.max_steps=3")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stderr, r"in no example \(8 examples looked at\) a token that ends generation is learnt.*answer ends with '.*' \(\d+\), and "
                                         rf"generation with '.*' \(\d+\); {advice}")

    def test_a_template_that_cannot_be_read_ends_before_training(self):
        rows = self.work / "hello.jsonl"
        rows.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Chirp!"}]}) + "\n")
        for name, source, says in (("include", "a\n{% include 'b' %}", "line 2, column"), ("raise", "{{ raise_exception('never') }}", "never"),
                                   ("endless", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "line 1, column")):
            base = self.base(name, chat_template__jinja=source)
            output = self.work / f"{name}-run"
            refused = self.programs.train(output, f"model.path={base}", f"data.train.path={rows}", "data.train.format=chat")
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(says, refused.stderr)
            self.assertFalse((output / "metrics.jsonl").exists())

    def test_alpacas_rows_replace_an_own_template_that_writes_only_conversations(self):
        # The published alpaca template has no preamble; rows of instructions are written with Stanford's.
        jinja = (self.train("alpaca") / "chat_template.jinja").read_text()
        self.assertIn("Below is an instruction that describes a task", jinja)
        rows = self.work / "chat.jsonl"
        rows.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Chirp!"}]}) + "\n")
        chat = self.train("alpaca-chat", f"data.train.path={rows}", "data.train.format=chat", "data.chat_template=alpaca",
                          "batch.global=1")
        jinja = (chat / "chat_template.jinja").read_text()
        self.assertNotIn("Below is an instruction", jinja)
        self.assertIn("chat template: alpaca, which the adapter was trained with", self.eval(chat)[1])

    def test_only_the_template_changes_in_tokenizer_config(self):
        config = ('{"chat_template": [{"name": "default", "template": "{# } \\" #}"}], "eos_token": {"content": "<|end_of_text|>"},\n'
                  f' {MODEL_MAX_LENGTH} , "odd": "a\\\\\\"}}" }}\n')
        base = self.base("odd", tokenizer_config__json=config)
        output = self.train("odd-run", f"model.path={base}", "data.chat_template=plain")
        written = (output / "tokenizer_config.json").read_text()
        jinja = (output / "chat_template.jinja").read_text()
        self.assertEqual(json.loads(written), {**json.loads(config), "chat_template": jinja})
        self.assertEqual(re.sub(r'"chat_template": "(\\.|[^"\\])*"', "T", written),
                         re.sub(r'"chat_template": \[.*?\]', "T", config))

    def test_an_adapter_without_a_config_keeps_the_bases_template_unless_it_has_one_that_can_be_read(self):
        bare = self.work / "bare"
        bare.mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copy(self.plain / name, bare)
        self.assertIn("chat template: alpaca (the default", self.eval(bare)[1])
        (bare / "chat_template.jinja").write_text("{% for %}")
        _, log = self.eval(bare)
        self.assertIn("is not used: [chat_template] line 1, column", log)
        self.assertIn("chat template: alpaca (the default", log)
        (bare / "chat_template.jinja").write_text(published_llama2())
        self.assertIn("chat template: a Jinja template, which the adapter was trained with", self.eval(bare)[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
