"""Writes Alpaca-like JSON lines for benchmarks: as many rows, or as many bytes, as asked.

Rows of a real Alpaca file are varied, so that no two are equal and a tokenizer's cache of words helps no more than it
does on real rows: one word in eight is replaced by another of the file, and every instruction ends in a number of its own.

    make_rows.py ALPACA.json OUT.jsonl --rows 52002
    make_rows.py ALPACA.json OUT.jsonl --gigabytes 5
"""

import argparse
import json
import pathlib
import random

VARIANTS = 24  # of each row of the file; behind them they recur, with other numbers
CHANGED_WORDS = 1 / 8


def varied(text, words, rng):
    return " ".join(rng.choice(words) if rng.random() < CHANGED_WORDS else word for word in text.split(" "))


def templates(rows, rng):
    """JSON objects as bytes, cut at the place of the number."""
    words = [word for row in rows for word in (row["instruction"] + " " + row["output"]).split()]
    for _ in range(VARIANTS):
        for row in rows:
            changed = {key: varied(row[key], words, rng) for key in ("instruction", "input", "output")}
            changed["instruction"] += " (No. @@)"
            before, after = json.dumps(changed, ensure_ascii=False).encode().split(b"@@")
            yield before, after + b"\n"


def write(out, pieces, most_rows, most_bytes):
    rows = size = 0
    while rows < most_rows and size < most_bytes:
        before, after = pieces[rows % len(pieces)]
        size += out.write(b"%b%d%b" % (before, rows, after))
        rows += 1
    return rows, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("alpaca", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--rows", type=int)
    size.add_argument("--gigabytes", type=float)
    args = parser.parse_args()
    pieces = list(templates(json.loads(args.alpaca.read_text()), random.Random(42)))
    with args.out.open("wb", buffering=1 << 20) as out:
        most_bytes = args.gigabytes * 1e9 if args.gigabytes else float("inf")
        rows, size = write(out, pieces, args.rows or float("inf"), most_bytes)
    print(f"{rows} rows, {size / 1e9:.3f} GB")


if __name__ == "__main__":
    main()
