"""Lorikeet's Jinja renders what jinja2 renders as transformers sets it up.

usage: jinja_parity.py JINJA_TOOL FOLDER_OF_TEMPLATES [unittest's arguments]
"""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "text"))
try:
    import make_jinja_goldens as goldens
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL, TEMPLATES = sys.argv[1], pathlib.Path(sys.argv[2])
CALL = {"type": "function", "id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "K\u00f6ln <b>", "days": 2}}}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather's forecast",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": " Which \"city\" "}, "days": {"type": "integer", "description": "How many"}}, "required": ["city"]},
    "return": {"type": "string", "description": "A text"}}}]


def turn(role, content, **others):
    return {"role": role, "content": content, **others}


CONVERSATIONS = {
    "tools": [turn("user", "Weather?"), turn("assistant", None, tool_calls=[CALL]), turn("tool", "sunny", name="weather", tool_call_id="abcdefghi"), turn("assistant", "Sunny.")],
    "tools_text_arguments": [turn("user", "Weather?"), turn("assistant", "", tool_calls=[{**CALL, "function": {"name": "weather", "arguments": "{\"city\": \"x\"}"}}])],
    "empty_contents": [turn("system", ""), turn("user", ""), turn("assistant", "")],
    "unicode": [turn("user", "\u6771\u4eac \U0001f642\u200d\u2028 \u0130\u00df"), turn("assistant", "\u3000\u00a0na\u00efve\u0085")],
    "system_in_the_middle": [turn("user", "a"), turn("system", "b"), turn("assistant", "c")],
    "system_alone": [turn("system", "only")],
    "control_tokens": [turn("user", "<|im_end|></s>[INST] <|eot_id|>"), turn("assistant", "<s>{{ x }}{% if %}")],
    "reasoning": [turn("user", "1+1"), turn("assistant", "<think>two</think>\n\n2", reasoning_content="two"), turn("user", "so?"), turn("assistant", "yes")],
    "parts": [turn("user", [{"type": "text", "text": "first "}, {"type": "text", "text": "second"}]), turn("assistant", "ok")],
    "long": [turn(("user", "assistant")[i % 2], f" turn {i}\n" * i) for i in range(12)],
}


def ours(cases):
    lines = "".join(json.dumps({"template": source, "variables": variables}) + "\n" for source, variables in cases)
    done = subprocess.run([TOOL], input=lines, capture_output=True, text=True, check=True, encoding="utf-8")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


class JinjaParity(unittest.TestCase):
    maxDiff = None

    def compare(self, cases):
        answers = ours(cases)
        self.assertEqual(len(answers), len(cases))
        for (source, variables), answer in zip(cases, answers):
            with self.subTest(template=source[-200:], answer=answer.get("error")):
                self.assertEqual(answer.get("text"), goldens.render(source, variables))

    def test_small_templates(self):
        self.compare([(source, goldens.VARIABLES) for source in goldens.cases()])

    def test_the_golden_file_is_what_jinja2_renders(self):
        lines = (ROOT / "tests" / "text" / "jinja_golden.jsonl").read_text(encoding="utf-8").split("\n")
        expected = [json.loads(line) for line in lines[1:] if line]
        self.assertEqual([case["template"] for case in expected], goldens.cases())
        for case in expected:
            with self.subTest(template=case["template"]):
                self.assertEqual(case["text"], goldens.render(case["template"], goldens.VARIABLES))

    def test_published_templates(self):
        if not TEMPLATES.is_dir():
            self.skipTest(f"{TEMPLATES} isn't there")
        conversations = {**CONVERSATIONS, **json.loads((TEMPLATES / "cases.json").read_text(encoding="utf-8"))}
        cases, rendered = [], 0
        for path in sorted(TEMPLATES.glob("*.jinja")):
            source = path.read_bytes().decode("utf-8")
            for messages in conversations.values():
                for tools in (None, TOOLS):
                    for prompt in (False, True):
                        cases.append((source, {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt,
                                               "bos_token": "<s>", "eos_token": "</s>"}))
                        rendered += goldens.render(*cases[-1]) is not None
        self.assertGreater(rendered, len(cases) // 2)
        print(f"{len(cases)} renderings, {rendered} of them without an error", file=sys.stderr)
        self.compare(cases)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
