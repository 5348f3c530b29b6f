"""Writes goldens/tokenizer: small tokenizers, strings, and the ids that `tokenizers` and `sentencepiece` give.

usage: make_tokenizer_goldens.py        (from any folder; overwrites the goldens beside it)

The C++ test reads them without Python. Seeded where training is random; training differs slightly between
versions of the packages, so that a new run may give other tokenizers with their own ids: equally good goldens.
"""

import json
import pathlib
import shutil
import tempfile

import sentencepiece

import tokenizer_kinds
from hard_strings import hard_strings

JSON_KINDS = ["gpt2-like", "llama3-like", "llama3-ignore-merges", "qwen2-like", "llama2-like", "llama2-metaspace-first",
              "metaspace-always-split", "normalizer-lower-nfkc-strip", "pre-sequence", "unigram-byte-fallback"]
SENTENCEPIECE_KINDS = ["sp-bpe-fallback", "sp-unigram-plain"]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


def main():
    out = pathlib.Path(__file__).resolve().parent / "goldens/tokenizer"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    strings = [s for s in hard_strings() if len(s) <= 48]
    strings = strings[:190] + strings[-60:]
    write_lines(out / "strings.jsonl", strings)
    tokenizer_kinds.VOCAB_SIZE = 420
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for kind, folder, reference in tokenizer_kinds.json_kinds(root, None, lambda name: name in JSON_KINDS):
            target = out / kind
            target.mkdir()
            (target / "tokenizer.json").write_text(json.dumps(json.loads((folder / "tokenizer.json").read_text()), separators=(",", ":")))
            ids = [reference.encode(s).ids for s in strings]
            write_lines(target / "ids.jsonl", ids)
            write_lines(target / "decoded.jsonl", [reference.decode(i, skip_special_tokens=False) for i in ids])
        for kind, folder in tokenizer_kinds.sentencepiece_kinds(root, None):
            if kind not in SENTENCEPIECE_KINDS:
                continue
            target = out / kind
            target.mkdir()
            shutil.copy(folder / "tokenizer.model", target)
            # Without these, the special tokens' spellings in the strings would be recognised.
            (target / "tokenizer_config.json").write_text('{"add_bos_token": false, "added_tokens_decoder": {}, "unk_token": "no such piece"}\n')
            model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
            ids = model.encode(strings)
            write_lines(target / "ids.jsonl", ids)
            write_lines(target / "decoded.jsonl", [model.decode(i) for i in ids])


if __name__ == "__main__":
    main()
