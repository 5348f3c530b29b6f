"""`lorikeet render` writes conversations as a chat template has them, or says what is wrong with either."""

import json
import subprocess
import sys
import unittest

import harness

BASE = harness.EXAMPLE / "base"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }}{{ eos_token }}{% endfor %}\n"
    "{%- if add_generation_prompt %}<assistant>{% endif %}"
)
USES_TOOLS = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ messages[-1].content }}"
TALK = [{"role": "user", "content": " é <b>\n"}, {"role": "assistant", "content": "Chirp!"}]
WRITTEN = "<|begin_of_text|><user>é <b><|end_of_text|><assistant>Chirp!<|end_of_text|>"


class Render(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.file = cls.work / "own.jinja"
        cls.file.write_text(TEMPLATE)
        cls.tools = cls.work / "tools.json"
        cls.tools.write_text('[{"name": "weather", "n": 1.0}]')

    def model(self, name, template):
        """The tokenizer's config of the quickstart with a chat template: no weights and no tokenizer.json are needed."""
        folder = self.work / name
        folder.mkdir()
        config = json.loads((BASE / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
        return folder

    def render(self, model, *arguments, lines=(TALK,), code=0):
        stdin = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        result = self.programs.verb("render", model, *arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, result.stderr)
        if code != 0:
            self.assertEqual(sum(line.startswith("error: ") for line in result.stderr.splitlines()), 1, result.stderr)
            return result.stdout, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def test_each_line_is_rendered_by_the_folders_own_template(self):
        model = self.model("own", TEMPLATE)
        self.assertEqual(self.render(model, lines=(TALK, TALK[:1])), [WRITTEN, WRITTEN[: WRITTEN.index("<assistant>")]])
        self.assertEqual(self.render(model, "--add-generation-prompt"), [WRITTEN + "<assistant>"])
        self.assertEqual(self.render(model, lines=()), [])
        (model / "chat_template.jinja").write_text("{{ messages | length }}")
        self.assertEqual(self.render(model), ["2"])  # the newer place wins
        self.assertEqual(self.render(model, "--template", self.file), [WRITTEN])

    def test_of_named_templates_tools_choose_the_one_for_them(self):
        named = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": USES_TOOLS}]
        model = self.model("named", named)
        self.assertEqual(self.render(model), [WRITTEN])
        self.assertEqual(self.render(model, "--tools", self.tools), ['{"name": "weather", "n": 1.0}Chirp!'])
        one = self.model("one", [{"name": "default", "template": USES_TOOLS}])
        self.assertEqual(self.render(one, "--tools", self.tools), ['{"name": "weather", "n": 1.0}Chirp!'])
        rag = self.model("rag", [{"name": "rag", "template": ""}])
        self.assertIn("expected a chat template called default, found only rag", self.render(rag, code=2)[1])

    def test_the_date_is_the_same_every_day_unless_given(self):
        self.file.with_name("date.jinja").write_text("{{ strftime_now('%d %b %Y') }}")
        own = ("--template", self.file.with_name("date.jinja"))
        self.assertEqual(self.render(BASE, *own), ["26 Jul 2024"])
        self.assertEqual(self.render(BASE, *own, "--date", "2025-02-28"), ["28 Feb 2025"])
        self.assertIn("got '2025-02-29'", self.render(BASE, *own, "--date", "2025-02-29", code=2)[1])

    def test_what_is_wrong_is_named_by_its_line(self):
        own = ("--template", self.file)
        stdout, error = self.render(BASE, *own, lines=(TALK, "[{"), code=2)
        self.assertEqual(json.loads(stdout), WRITTEN)  # what stands before is written
        self.assertIn("[line 2", error)
        for line, says in (("{}", "expected an array, got {}"), ("[]", "at least one message"), ("[3]", "a message, an object"),
                           ("", "line 1"), ('[{"a": "\\ud800"}]', "line 1"), ("\x00", "line 1")):
            with self.subTest(line):
                self.assertIn(says, self.render(BASE, *own, lines=(line,), code=2)[1])
        self.assertIn("expected a chat template in tokenizer_config.json or chat_template.jinja", self.render(BASE, code=2)[1])
        for name, tools, says in (("no.json", None, "no.json"), ("text.json", "{", "text.json"), ("number.json", "[1]", "a tool's JSON schema")):
            path = self.work / name
            if tools is not None:
                path.write_text(tools)
            self.assertIn(says, self.render(BASE, *own, "--tools", path, code=2)[1])
        self.assertIn("missing.jinja", self.render(BASE, "--template", self.work / "missing.jinja", code=2)[1])

    def test_faults_of_a_template_are_named_by_line_and_column(self):
        cases = {
            "syntax": ("\n{% for %}", "line 2, column"),
            "unsupported": ("x\n {% include 'y' %}", "line 2, column 2 of the template: "),
            "refuses": ("{{ raise_exception('roles must alternate') }}", "[line 1] [chat_template] line 1, column 4 of the template"),
            "recursion": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "of the template: "),
            "nested": ("{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}", "nested deeper"),
            "endless": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "of the template: "),
            "growing": ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "of the template: "),
        }
        for name, (source, says) in cases.items():
            with self.subTest(name):
                path = self.work / f"{name}.jinja"
                path.write_text(source)
                stdout, error = self.render(BASE, "--template", path, code=2)
                self.assertEqual(stdout, "")
                self.assertIn(says, error)
        (self.work / "bytes.jinja").write_bytes(b"\xff")
        self.assertIn("UTF-8", self.render(BASE, "--template", self.work / "bytes.jinja", code=2)[1])

    def test_a_full_disk_behind_stdout_is_no_success(self):
        command = [str(self.programs.folder / "lorikeet"), "render", str(BASE), "--template", str(self.file)]
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run(command, input=json.dumps(TALK), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 3, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
