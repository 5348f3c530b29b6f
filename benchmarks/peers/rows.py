"""Rows of random tokens that all programs train on, in one order."""

import json
import random

IGNORED = -100


def instruction_lengths(draw, rows, total):
    """Lengths of `rows` rows, together `total` tokens, spread as instruction data is: log-normal, sigma 0.6."""
    drawn = [draw.lognormvariate(0, 0.6) for _ in range(rows)]
    lengths = [max(4, int(total * one / sum(drawn))) for one in drawn]
    lengths[lengths.index(max(lengths))] += total - sum(lengths)
    return lengths


def make_rows(layout, vocabulary, packs):
    """Rows of `packs` packs. Instruction rows are labelled from a third to two thirds of their length on, others
    everywhere."""
    draw = random.Random(0)
    for _ in range(packs):
        lengths = [layout.length] if layout.rows == 1 else instruction_lengths(draw, layout.rows, layout.length)
        for length in lengths:
            ids = [draw.randrange(1, vocabulary) for _ in range(length)]
            prompt = 0 if layout.rows == 1 else max(1, int(length * draw.uniform(1 / 3, 2 / 3)))
            yield {"input_ids": ids, "labels": [IGNORED] * prompt + ids[prompt:]}


def write_rows(path, layout, vocabulary, steps):
    """Writes the rows of `steps` steps; returns them."""
    rows = list(make_rows(layout, vocabulary, steps * layout.packs * layout.accumulate))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


def label_tokens(rows):
    """Tokens that have a loss: the first token of a row is predicted from nothing."""
    return sum(label != IGNORED for row in rows for label in row["labels"][1:])
