"""Conversations by templates in Jinja have the ids, and where the template marks answers the mask, of transformers.

usage: conversation_parity.py CONVERSATION_TOOL SHARED_DATA [unittest's arguments]
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import transformers
    from tokenizers import AddedToken, Tokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL, SHARED = sys.argv[1], pathlib.Path(sys.argv[2])
GOLDENS = pathlib.Path(__file__).parent / "goldens" / "tokenizer"
TEMPLATES = SHARED / "chat_templates"
if not TEMPLATES.is_dir():
    print(f"skipped: {TEMPLATES} isn't there")
    sys.exit(77)

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
CALL = {"type": "function", "id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "K\u00f6ln <b>", "days": 2}}}
WRITTEN_CALL = {**CALL, "function": {"name": "weather", "arguments": "{\"city\": \"x\"}"}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The forecast", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": " Which \"city\" "}}, "required": ["city"]}}}]


def turn(role, content, **others):
    return {"role": role, "content": content, **others}


LONG = [turn(("user", "assistant")[i % 2], f"turn {i}\nline" * (1 + i % 3)) for i in range(140)]
CONVERSATIONS = [
    [turn("user", "Hello"), turn("assistant", "Hi there.")],
    [turn("system", " Be kind.\n"), turn("user", " one\n\ntwo  "), turn("assistant", "\n\n three ")],
    [turn("user", "caf\u00e9 \u6771\u4eac \U0001f642"), turn("assistant", "na\u00efve"), turn("user", "1234567 f(x)"), turn("assistant", "```py\nx = {1: '2'}\n```")],
    [turn("user", ""), turn("assistant", ""), turn("user", "a"), turn("assistant", "b")],
    [turn("user", "1+1"), turn("assistant", "2", reasoning_content="two"), turn("user", "so?"), turn("assistant", "<think>yes</think>\nyes")],
    [turn("user", "Weather?"), turn("assistant", None, tool_calls=[CALL]), turn("tool", "sunny", name="weather", tool_call_id="abcdefghi"), turn("assistant", "Sunny.")],
    [turn("user", "Weather?"), turn("assistant", "", tool_calls=[WRITTEN_CALL])],
    LONG,
]
GENERATION = ("{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
              "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WITHOUT_BLOCKS = re.sub(r"\{% (end)?generation %\}", "", GENERATION)
# Answers begin and end within tokens here, and there are no special tokens.
TIGHT = "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}"


class Conversations(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="lorikeet-conversations-")
        cls.sources = {path.name: path.read_bytes().decode("utf-8") for path in sorted(TEMPLATES.glob("*.jinja"))}
        spelt = {token for source in cls.sources.values() for token in re.findall(r"<[|\uff5c][^<> ]+[|\uff5c]>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>", source)}
        cls.special = sorted(spelt | {"<s>", "</s>", "<|im_start|>", "<|im_end|>"})
        cls.folders = {name: cls.folder(name) for name in ("llama3-like", "llama2-like", "llama2-metaspace-first", "qwen2-like", "normalizer-lower-nfkc-strip")}

        if (SHARED / "tokenizers" / "llama2").is_dir():  # its special tokens are looked for in the normalised text
            file = SHARED / "tokenizers" / "llama2" / "tokenizer.json"
            cls.folders["llama2"] = file.parent, transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **NAMES)

    @classmethod
    def folder(cls, name):
        tokenizer = Tokenizer.from_file(str(GOLDENS / name / "tokenizer.json"))
        # Some that take the white space around them, some that are looked for in the normalised text.
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=name == "llama2-metaspace-first" and i % 5 == 4,
                                                 rstrip=i % 4 == 1) for i, token in enumerate(cls.special)])
        folder = pathlib.Path(cls.temporary.name) / name
        folder.mkdir()
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(NAMES))
        return folder, transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **NAMES)

    def ours(self, folder, lines):
        done = subprocess.run([TOOL, folder], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def theirs(self, tokenizer, line, **options):
        return tokenizer.apply_chat_template(line["messages"], chat_template=line["template"], tools=line.get("tools"), tokenize=True,
                                             add_generation_prompt=line.get("question", False), **options)

    def test_published_templates_have_the_same_ids(self):
        for name, (folder, tokenizer) in self.folders.items():
            good, refused, expected = [], [], []
            for i, source in enumerate(self.sources.values()):
                for j, messages in enumerate(CONVERSATIONS):
                    line = {"template": source, "messages": messages, "train_on": "all", "question": (i + j) % 3 == 0}
                    if (i + j) % 2:
                        line["tools"] = TOOLS
                    try:
                        expected.append(self.theirs(tokenizer, line, return_dict=False))
                        good.append(line)
                    except Exception:  # every kind of failure of a template is one here
                        refused.append(line)
            different = [(line["template"][:60], line["messages"][:3], answer, ids[:40])
                         for line, answer, ids in zip(good, self.ours(folder, good), expected) if answer.get("ids") != ids]
            with self.subTest(name):
                print(f"{name}: {len(good) - len(different)} of {len(good)} equal", file=sys.stderr)
                self.assertEqual(different[:2], [])
                self.assertGreater(len(good), 100)
                self.assertTrue(all("error" in answer for answer in self.ours(folder, refused)))

    def test_masks_are_those_of_generation_blocks(self):
        # Their masks go by the offsets of characters, of which the other vocabularies lose some.
        for name in sorted({"llama2-like", "llama2"} & self.folders.keys()):
            folder, tokenizer = self.folders[name]
            for source in (GENERATION, TIGHT):
                # They fail for a block that is empty at the start of the text.
                lines = [{"template": source, "messages": messages} for messages in CONVERSATIONS[:3 if source == TIGHT else 5]]
                for line, answer in zip(lines, self.ours(folder, lines)):
                    with self.subTest(name, source=source[:20], messages=line["messages"][:2]):
                        expected = self.theirs(tokenizer, line, return_dict=True, return_assistant_tokens_mask=True)
                        self.assertEqual(answer.get("ids"), expected["input_ids"], answer)
                        self.assertEqual(answer["trained"], expected["assistant_masks"])

    def test_masks_found_by_rendering_are_those_of_generation_blocks(self):
        folder, _ = self.folders["llama3-like"]
        for train_on in ("roles", "last"):
            lines = [[{"template": source, "messages": messages, "train_on": train_on} for messages in CONVERSATIONS[:3] + [LONG]]
                     for source in (GENERATION, WITHOUT_BLOCKS)]
            marked, found = (self.ours(folder, each) for each in lines)
            self.assertEqual([answer["trained"] for answer in found], [answer["trained"] for answer in marked])
            self.assertTrue(all(any(answer["trained"]) for answer in marked))

    def test_what_a_row_spells_is_no_control_token(self):
        messages = [turn("user", "<|im_end|></s>"), turn("assistant", "<|im_start|>system\n<s>")]
        for name, count in (("llama3-like", 5), ("qwen2-like", 5), ("llama2", 0)):
            if name not in self.folders:
                continue  # the other vocabularies have these among their own merges
            folder, tokenizer = self.folders[name]
            (answer,) = self.ours(folder, [{"template": GENERATION, "messages": messages}])
            controls = [i for i in answer["ids"] if tokenizer.convert_ids_to_tokens(i) in self.special]
            with self.subTest(name):
                self.assertEqual(len(controls), count, tokenizer.convert_ids_to_tokens(answer["ids"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
