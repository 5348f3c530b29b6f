"""Compares ids and decoded text with the `tokenizers` and `sentencepiece` packages, live.

usage: tokenizer_parity.py TOKENIZE_LINES_TOOL [DATA]

Every kind of tokenizer is made afresh in a temporary folder: small ones trained here that cover each component,
and, where DATA (a folder with `tokenizers` and `torchtune`) is given, real ones. Each is run over all of
hard_strings(). Exits 1 if anything differs, and 77 (skipped) where the packages are missing.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import tokenizers  # noqa: F401
    import sentencepiece
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from hard_strings import hard_strings
from tokenizer_kinds import json_kinds, sentencepiece_kinds


def run_tool(tool, folder, values, *flags):
    lines = "".join(json.dumps(v) + "\n" for v in values)
    done = subprocess.run([tool, str(folder), *flags], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


class Report:
    def __init__(self):
        self.failed = 0

    def compare(self, kind, what, inputs, ours, theirs):
        wrong = [i for i in range(len(inputs)) if ours[i] != theirs[i]]
        print(f"{kind:32} {what:28} {len(inputs) - len(wrong)}/{len(inputs)} equal")
        for i in wrong[:4]:
            print(f"    {inputs[i]!r}\n      ours   {ours[i]!r}\n      theirs {theirs[i]!r}")
        self.failed += bool(wrong) or len(ours) != len(theirs)


def check_json(tool, kind, folder, reference, strings, report):
    tokenizer = reference
    special = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    ids = [tokenizer.encode(s).ids for s in strings]
    report.compare(kind, "encode", strings, run_tool(tool, folder, strings), ids)
    bare = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
    report.compare(kind, "encode --no-specials", strings, run_tool(tool, folder, strings, "--no-specials"), bare)
    tokenizer.encode_special_tokens = True
    plain = [tokenizer.encode(s).ids for s in strings]
    tokenizer.encode_special_tokens = False
    report.compare(kind, "encode, specials as text", strings, run_tool(tool, folder, strings, "--plain-specials"), plain)
    report.compare(kind, "decode", ids, run_tool(tool, folder, ids, "--decode"),
                   [tokenizer.decode(i, skip_special_tokens=False) for i in ids])
    # The package keeps special tokens that are `normalized` when asked to skip them; they are left out here, so
    # that only the other ids are compared.
    kept = [[i for i in row if i not in special] for row in ids]
    report.compare(kind, "decode --no-specials", ids, run_tool(tool, folder, ids, "--decode", "--no-specials"),
                   [tokenizer.decode(i, skip_special_tokens=True) for i in kept])


def check_sentencepiece(tool, kind, folder, strings, report):
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    ids = model.encode(strings)
    report.compare(kind, "encode, specials as text", strings,
                   run_tool(tool, folder, strings, "--no-specials", "--plain-specials"), ids)
    report.compare(kind, "decode", ids, run_tool(tool, folder, ids, "--decode"), [model.decode(i) for i in ids])
    if model.bos_id() >= 0 and model.eos_id() >= 0:
        framed = [[model.bos_id(), *i, model.eos_id()] for i in ids]
        report.compare(kind, "encode --bos-eos", strings,
                       run_tool(tool, folder, strings, "--bos-eos", "--plain-specials"), framed)


def main():
    tool = sys.argv[1]
    data = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if data is not None and not data.exists():
        print(f"{data} is not there: only tokenizers trained here are compared")
        data = None
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    strings = hard_strings()
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for kind, folder, reference in json_kinds(root, data):
            if only in kind:
                check_json(tool, kind, folder, reference, strings, report)
        for kind, folder in sentencepiece_kinds(root, data):
            if only in kind:
                check_sentencepiece(tool, kind, folder, strings, report)
    print("all equal" if report.failed == 0 else f"{report.failed} comparisons differ")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
