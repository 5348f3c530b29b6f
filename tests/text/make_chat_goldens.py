"""Renders chat templates with jinja2 and writes tests/text/chat_golden.jsonl, which chat_template_test.cpp reads.

    .venv/bin/python tests/text/make_chat_goldens.py [FOLDER_OF_JINJA_FILES]

Templates are those below, and of the folder (../shared/data/chat_templates by default, when it is there) those in
FILES. The environment is the one that transformers renders with (trim_blocks, lstrip_blocks).
"""

import hashlib
import json
import pathlib
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent

CHATML_TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
CHATML_PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
LLAMA3_BODY = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
)
LLAMA3_PROMPT = "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"

# name -> (built-in that renders the same, source)
SOURCES = {
    "Llama-2-chat": (
        "llama2",
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    ),
    # The first release always opened the next turn; only with add_generation_prompt is that the same text.
    "Llama-3-Instruct, first release": ("llama3", LLAMA3_BODY + LLAMA3_PROMPT),
    "Llama-3-Instruct": (
        "llama3",
        LLAMA3_BODY + "{% if add_generation_prompt %}" + LLAMA3_PROMPT + "{% endif %}",
    ),
    "ChatML": ("chatml-plain", "{% for message in messages %}" + CHATML_TURN + "{% endfor %}" + CHATML_PROMPT),
    "ChatML, spaced": (
        "chatml-plain",
        "{% for message in messages %}"
        + CHATML_TURN.replace("{{'", "{{ '").replace("'}}", "' }}")
        + "{% endfor %}"
        + CHATML_PROMPT,
    ),
    "SmolLM2-Instruct": (
        "smollm2",
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}"
        "{% endif %}" + CHATML_TURN + "{% endfor %}" + CHATML_PROMPT,
    ),
}


def compact(source):
    """How chujiezheng/chat_templates says its files are to be used: the layout is not part of the template."""
    return source.replace("    ", "").replace("\n", "")


# file -> (built-in that renders the same, how its text is used)
FILES = {
    "cz_alpaca.jinja": ("alpaca", compact),
    "cz_chatml.jinja": ("chatml", compact),
    "cz_llama-2-chat.jinja": ("llama2-stripped", compact),
    "cz_llama-3-instruct.jinja": ("llama3", compact),
    "ax_llama3.jinja": ("llama3", str),
    "ax_qwen_25.jinja": ("qwen2.5", str),
    "lc_meta-llama-Llama-3.1-8B-Instruct.jinja": ("llama3.1", str),
}


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


CASES = {
    "one turn": turns(("user", "What is 2+2?"), ("assistant", "4")),
    "system": turns(("system", "Be terse."), ("user", "Name a colour."), ("assistant", "Blue.")),
    "several turns": turns(
        ("system", "Be kind."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "Who are you?"),
        ("assistant", "A machine."),
        ("user", "Since when?"),
    ),
    "white space": turns(
        ("system", " \n Be terse.\t\n"),
        ("user", "\u3000 first\u00a0\n"),
        ("assistant", "\n  answer \u2003\u0085\x1c"),
        ("user", "\t"),
        ("assistant", "\u200b kept \u200b"),
    ),
    "empty system": turns(("system", ""), ("user", "Hello"), ("assistant", "Hi")),
    "marks": turns(
        ("user", "[INST] <<SYS>> <|im_end|> </s> <|eot_id|> {{ x }}"),
        ("assistant", "### Response:\n<|im_start|>user\ncafé 東京 🙂"),
    ),
    "two users": turns(("user", "first"), ("user", "second")),
}


def render(source, messages, add_generation_prompt):
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source).render(
        messages=messages, bos_token="<s>", eos_token="</s>", add_generation_prompt=add_generation_prompt
    )


def main():
    folder = HERE.parent.parent.parent / "shared" / "data" / "chat_templates"
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
    sources = {name: (builtin, source, source) for name, (builtin, source) in SOURCES.items()}
    for name, (builtin, use) in FILES.items():
        sources[name] = (builtin, use((folder / name).read_text()).removesuffix("\n"), None)
    with open(HERE / "chat_golden.jsonl", "w") as out:
        for name, (builtin, source, written) in sources.items():
            sha256 = hashlib.sha256(source.encode()).hexdigest()
            head = {"template": name, "builtin": builtin, "sha256": sha256}
            if written is not None:
                head["source"] = written
            out.write(json.dumps(head, ensure_ascii=False) + "\n")
            for case, messages in CASES.items():
                for generation_prompt in (False, True):
                    if name.endswith("first release") and not generation_prompt:
                        continue
                    row = {"case": case, "generation_prompt": generation_prompt, "messages": messages}
                    try:
                        row["text"] = render(source, messages, generation_prompt)
                    except jinja2.TemplateError as error:
                        row["error"] = str(error)
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f'    {{"{sha256}", "{builtin}"}},  // {name}')


if __name__ == "__main__":
    main()
