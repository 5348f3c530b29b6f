"""`lorikeet render` writes what transformers' apply_chat_template writes for a tokenizer's folder.

usage: render_parity.py LORIKEET FOLDER_OF_TEMPLATES [unittest's arguments]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from jinja_parity import CONVERSATIONS, ROOT, TEMPLATES, TOOLS  # noqa: I001 (it fixes the date of strftime_now)
    from transformers import PreTrainedTokenizerFast
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LORIKEET = sys.argv[1]
BASE = ROOT / "examples" / "quickstart" / "base"
if not TEMPLATES.is_dir():
    print(f"skipped: {TEMPLATES} isn't there")
    sys.exit(77)

TOKENS = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "__type": "AddedToken"},
          "image_token": "<image>", "pad_token": None}
NULLS = [{"role": "user", "content": "a", "tool_calls": None}, {"role": "assistant", "content": None, "reasoning": "because"}]


class RenderParity(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="lorikeet-render-")
        cls.work = pathlib.Path(cls.temporary.name)
        cls.conversations = [*CONVERSATIONS.values(), *json.loads((TEMPLATES / "cases.json").read_text(encoding="utf-8")).values(), NULLS]

    def folder(self, name, config, files=None):
        folder = self.work / name
        folder.mkdir()
        shutil.copy(BASE / "tokenizer.json", folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **TOKENS, **config}))
        for file, text in (files or {}).items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(text)
        return folder

    def render(self, folder, conversations, tools, prompt):
        command = [LORIKEET, "render", folder, *(["--add-generation-prompt"] if prompt else [])]
        if tools is not None:
            (folder / "tools.json").write_text(json.dumps(tools))
            command += ["--tools", folder / "tools.json"]
        lines = "".join(json.dumps(talk) + "\n" for talk in conversations)
        return subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)

    def compare(self, folder, tools, prompt):
        """Holds the conversations that transformers renders to what it writes; how many they are, and those that it refuses."""
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        good, expected, bad = [], [], []
        for talk in self.conversations:
            try:
                expected.append(tokenizer.apply_chat_template(talk, tools=tools, add_generation_prompt=prompt, tokenize=False))
                good.append(talk)
            except Exception:  # every kind of failure of a template is one here
                bad.append(talk)
        result = self.render(folder, good, tools, prompt)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([json.loads(line) for line in result.stdout.split("\n") if line], expected)
        return len(good), bad

    def test_published_templates(self):
        rendered = refused = 0
        for i, path in enumerate(sorted(TEMPLATES.glob("*.jinja"))):
            source = path.read_bytes()
            # Each in one of the two places where checkpoints have it.
            folder = (self.folder(path.stem, {}, {"chat_template.jinja": source}) if i % 2 else
                      self.folder(path.stem, {"chat_template": source.decode("utf-8")}))
            # A start of the program takes most of the time: each template is held with tools or without them here.
            with_tools = i // 2 % 2 == 1
            with self.subTest(template=path.name, tools=with_tools):
                count, bad = self.compare(folder, TOOLS if with_tools else None, with_tools)
                rendered += count
                if bad and refused < 3:
                    self.assertEqual(self.render(folder, bad[:1], TOOLS if with_tools else None, with_tools).returncode, 2)
                    refused += 1
        print(f"{rendered} renderings", file=sys.stderr)
        self.assertGreater(rendered, 200)
        self.assertEqual(refused, 3)

    def test_named_templates_tokens_and_older_files(self):
        shows = "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ unk_token }}{{ pad_token is defined }}{{ audio }}{{ tools }}{{ documents }}{{ messages }}"
        named = {"chat_template": [{"name": "default", "template": "d" + shows}, {"name": "tool_use", "template": "t" + shows}]}
        older = {"special_tokens_map.json": json.dumps({"unk_token": "<u>", "bos_token": {"content": "<b>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}}).encode()}
        files = {"chat_template.jinja": ("f" + shows).encode(), "additional_chat_templates/tool_use.jinja": ("g" + shows).encode()}
        cases = {"named": (named, {}), "older": (named, older), "files": (named, files), "one": (named, {"chat_template.jinja": shows.encode()}),
                 "extra": ({**named, "extra_special_tokens": {"audio": "<a>"}}, {}), "newer": ({**named, "added_tokens_decoder": {}}, older)}
        for name, (config, extra) in cases.items():
            folder = self.folder(f"own-{name}", config, extra)
            for tools in (None, TOOLS):
                with self.subTest(name, tools=tools is not None):
                    self.assertEqual(self.compare(folder, tools, True), (len(self.conversations), []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
