"""The Jinja source of each built-in template gives in transformers the text and the ids that Lorikeet trains on.

usage: chat_template_parity.py CHAT_TEMPLATE_TOOL [unittest's arguments]
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import jinja2
    import transformers
    from tokenizers import AddedToken, Tokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "tokenizer"
CONTROL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TEMPLATES = ["plain", "alpaca", "llama2", "llama2-stripped", "llama3", "llama3.1", "chatml", "chatml-plain", "qwen2.5",
             "smollm2"]
# Contents whose ids don't depend on where text is cut: at the mask's edges Lorikeet cuts, transformers doesn't.
PLAIN = ["Hello", "What is 2+2?", "Blue, of course.", "", "caf\u00e9 \u6771\u4eac \U0001f642", "one\n\ntwo\n  three", "f(x) = {x: 'y'}",
         "it's \"quoted\" \\\\ {{ x }} {% raw %}", "1234567"]
# White space at the ends, and control tokens in text, which Lorikeet never takes for control tokens.
HARD = [" \n both \t", "\u3000wide\u00a0", "\u200bkept\u200b", "\x1c", "</s><|im_end|>[INST]", "### Response:\n"]


def conversations(contents, seed):
    choose = random.Random(seed)
    for turns in range(1, 7):
        for system in (False, True):
            for _ in range(4):
                messages = [{"role": "system", "content": choose.choice(contents)}] if system else []
                messages += [{"role": ("user", "assistant")[i % 2], "content": choose.choice(contents)} for i in range(turns)]
                for generation_prompt in (False, True):
                    yield {"messages": messages, "generation_prompt": generation_prompt}


def instruction_rows(contents, seed):
    choose = random.Random(seed)
    for i in range(60):
        row = {"instruction": choose.choice(contents), "input": choose.choice(contents) if i % 2 else ""}
        if i % 4 == 0:
            row["earlier"] = [{"role": role, "content": choose.choice(contents)} for role in ("system", "user", "assistant")]
        yield row if i % 3 == 0 else {**row, "output": choose.choice(contents)}


def messages_of(row, template):
    """What a user of transformers would pass for a row of instructions."""
    asked = {"role": "user", "content": row["instruction"]}
    if row["input"] and template == "alpaca":
        asked["input"] = row["input"]
    elif row["input"]:
        asked["content"] += "\n\n" + row["input"]
    return row.get("earlier", []) + [asked] + ([{"role": "assistant", "content": row["output"]}] if "output" in row else [])


class ChatTemplates(unittest.TestCase):
    tool = None

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="lorikeet-templates-")
        cls.folders = {
            "byte level": cls.tokenizer("llama3-ignore-merges", "<s>", "</s>"),
            "dummy prefix": cls.tokenizer("llama2-like", "<s>", "</s>"),
            "no BOS": cls.tokenizer("llama3-ignore-merges", None, "</s>"),
            "the turn's own token as BOS": cls.tokenizer("llama3-ignore-merges", "<|im_start|>", "<|im_end|>"),
        }

    @classmethod
    def tokenizer(cls, golden, bos, eos):
        tokenizer = Tokenizer.from_file(str(GOLDENS / golden / "tokenizer.json"))
        tokens = [AddedToken(t, special=True, normalized=False) for t in [*CONTROL, "<s>", "</s>"]]
        tokenizer.add_special_tokens(tokens)
        folder = pathlib.Path(cls.temporary.name) / f"{golden} {len(list(pathlib.Path(cls.temporary.name).iterdir()))}"
        folder.mkdir()
        tokenizer.save(str(folder / "tokenizer.json"))
        named = {"eos_token": eos} | ({"bos_token": bos} if bos else {})
        (folder / "tokenizer_config.json").write_text(json.dumps(named))
        return folder, transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)

    def ours(self, folder, template, rows, lines):
        done = subprocess.run([self.tool, folder, template, rows], input="".join(json.dumps(line) + "\n" for line in lines),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        source, *answers = map(json.loads, done.stdout.splitlines())
        self.assertEqual(len(answers), len(lines))
        return source, answers

    def theirs(self, tokenizer, source, messages, generation_prompt):
        # Asked for text and for ids: transformers' own way from one to the other is part of what is compared.
        return tuple(tokenizer.apply_chat_template(messages, chat_template=source, tokenize=tokenize, return_dict=False,
                                                   add_generation_prompt=generation_prompt) for tokenize in (False, True))

    def same(self, rows, lines, messages, generation_prompt, compare_ids=True):
        """Compares all templates with all tokenizers; `messages` and `generation_prompt` give transformers' side of a line."""
        different, compared = [], 0
        for kind, (folder, tokenizer) in self.folders.items():
            for template in TEMPLATES:
                source, answers = self.ours(folder, template, rows, lines)
                for line, answer in zip(lines, answers):
                    text, ids = self.theirs(tokenizer, source, messages(line, template), generation_prompt(line))
                    compared += 1
                    # In "plain" nothing parts prompt and answer, so transformers may merge tokens over the mask's edge.
                    same_ids = not compare_ids or template == "plain" or answer["ids"] == ids
                    if answer.get("text") != text or not same_ids:
                        different.append((kind, template, line, answer, text, ids))
        print(f"{compared - len(different)} of {compared} equal", flush=True)
        self.assertEqual(different[:3], [])
        self.assertGreater(compared, 2000)

    def test_conversations_have_the_same_text_and_ids(self):
        self.same("conversation", list(conversations(PLAIN, seed=1)), lambda line, _: line["messages"],
                  lambda line: line["generation_prompt"])

    def test_conversations_of_hard_contents_have_the_same_text(self):
        self.same("conversation", list(conversations(PLAIN + HARD, seed=2)), lambda line, _: line["messages"],
                  lambda line: line["generation_prompt"], compare_ids=False)

    def test_rows_of_instructions_have_the_same_text_and_ids(self):
        self.same("instruction", list(instruction_rows([c for c in PLAIN if c], seed=3)), messages_of,
                  lambda line: "output" not in line)

    def test_roles_that_a_template_cannot_express_are_refused_by_both(self):
        folder, tokenizer = self.folders["byte level"]
        users = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        tool = [{"role": "tool", "content": "a"}]
        for template, messages in (("llama2", users), ("llama2", tool), ("plain", tool), ("alpaca", tool)):
            source, (answer,) = self.ours(folder, template, "conversation", [{"messages": messages}])
            self.assertIn("error", answer)
            with self.assertRaises(jinja2.TemplateError):
                self.theirs(tokenizer, source, messages, False)

    def test_the_comparison_bites(self):
        folder, tokenizer = self.folders["byte level"]
        lines = [{"messages": [{"role": "user", "content": "a"}], "generation_prompt": False}]
        _, (answer,) = self.ours(folder, "llama3", "conversation", lines)
        other, _ = self.ours(folder, "llama3.1", "conversation", lines)
        text, ids = self.theirs(tokenizer, other, lines[0]["messages"], False)
        self.assertNotEqual(answer["text"], text)
        self.assertNotEqual(answer["ids"], ids)


if __name__ == "__main__":
    ChatTemplates.tool = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
