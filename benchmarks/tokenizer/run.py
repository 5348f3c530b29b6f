"""Encoding speed against the `tokenizers` package (and `sentencepiece`), on the same text, interleaved.

usage: run.py BENCH_TOKENIZER DATA [--repeats N]

DATA holds `tokenizers`, `torchtune` and `datasets`. Each tokenizer encodes every text once a repeat, first here,
then in the package by its fastest call (encode_batch_fast, which keeps no offsets), both on one thread. Prints MB/s (median) and the ratio of the medians.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import sentencepiece
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/parity"))
from hard_strings import hard_strings  # noqa: E402
from tokenizer_kinds import DEEPSEEK, GPT4O, gpt2_state  # noqa: E402


def texts(data):
    """(name, list of texts): rows of a data set, whole documents, and text that is hard on caches."""
    rows = json.loads((data / "datasets/alpaca/alpaca_en_demo.json").read_text(encoding="utf-8"))
    plain = [f"{r['instruction']}\n{r['input']}\n{r['output']}" for r in rows]
    yield "rows", plain
    yield "documents", ["\n\n".join(plain[i:i + 100]) for i in range(0, len(plain), 100)]
    yield "hard strings", hard_strings() * 10


def kinds(data, root):
    def folder(name, state=None, model=None):
        path = root / name
        path.mkdir()
        if state is not None:
            (path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
        if model is not None:
            (path / "tokenizer.model").write_bytes(model.read_bytes())
        return path

    def read(path):
        return json.loads((data / path).read_text(encoding="utf-8"))

    gpt2 = gpt2_state(data / "tokenizers/gpt2")
    yield "gpt2", folder("gpt2", gpt2)
    big = read("torchtune/tokenizer.json")
    # GPT-2's real vocabulary (50,257) behind Llama 3's, GPT-4o's and DeepSeek's ways to split.
    level = dict(gpt2["pre_tokenizer"], use_regex=False)
    for name, split in (("llama3 split", big["pre_tokenizer"]["pretokenizers"][0]),
                        ("gpt4o split", dict(type="Split", pattern={"Regex": GPT4O}, behavior="Isolated", invert=False)),
                        ("deepseek split", dict(type="Split", pattern={"Regex": DEEPSEEK}, behavior="Isolated", invert=False))):
        yield name, folder(name, dict(gpt2, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, level]}))
    yield "qwen-like tiny", folder("tiny", read("torchtune/tiny_bpe_tokenizer.json"))
    yield "llama2 json", folder("llama2", read("tokenizers/llama2/tokenizer.json"))
    yield "llama2 model", folder("spm", model=data / "tokenizers/llama2/tokenizer.model")
    yield "unigram model", folder("spm-unigram", model=data / "torchtune/sentencepiece.model")


def package_encoder(folder):
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda batch: sum(len(e.ids) for e in tokenizer.encode_batch_fast(batch))
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    return lambda batch: sum(len(model.encode(t)) for t in batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    print(f"| tokenizer | text | MB | ours MB/s | package MB/s | ratio | lowest ratio of a pair |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for kind, folder in kinds(args.data, pathlib.Path(temporary)):
            encode = package_encoder(folder)
            for name, batch in texts(args.data):
                megabytes = sum(len(t.encode()) for t in batch) / 1e6
                ours = subprocess.Popen([args.bench, str(folder), "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for text in batch:
                    ours.stdin.write(json.dumps(text) + "\n")
                ours.stdin.write("\n")
                ours.stdin.flush()
                ours.stdout.readline()
                mine, theirs = [], []
                for _ in range(args.repeats + 1):
                    ours.stdin.write("run\n")
                    ours.stdin.flush()
                    mine.append(float(ours.stdout.readline().split()[0]))
                    start = time.perf_counter()
                    encode(batch)
                    theirs.append(time.perf_counter() - start)
                ours.stdin.close()
                ours.wait()
                mine, theirs = mine[1:], theirs[1:]  # the first fills both caches
                a, b = statistics.median(mine), statistics.median(theirs)
                worst = min(t / m for m, t in zip(mine, theirs))
                print(f"| {kind} | {name} | {megabytes:.2f} | {megabytes / a:.1f} | {megabytes / b:.1f} | {b / a:.1f} | {worst:.1f} |", flush=True)


if __name__ == "__main__":
    main()
