"""Batches of the rows for transformers + PEFT: padded, packed with positions that start anew, or as they are."""

import json
import time

import torch
from rows import IGNORED


class Job:
    """What run.py wrote to job.json, and the rows."""

    def __init__(self, path):
        self.settings = json.load(open(path, encoding="utf-8"))
        self.model, self.device, self.steps = (self.settings[key] for key in ("model", "device", "steps"))
        layout = self.settings["layout"]
        self.name, self.length, self.accumulate = layout["name"], layout["length"], layout["accumulate"]
        self.micro_rows = layout["rows"] * layout["packs"]
        with open(self.settings["rows"], encoding="utf-8") as file:
            self.rows = [json.loads(line) for line in file]

    def collate(self, rows, flat=False):
        """A micro-batch. Packed ones are [packs, length], or [1, packs * length] if flat."""
        if self.name == "packed":
            columns = {"input_ids": [i for row in rows for i in row["input_ids"]],
                       "labels": [i for row in rows for i in row["labels"]],
                       "position_ids": [i for row in rows for i in range(len(row["input_ids"]))]}
            return {key: torch.tensor(values).view(1 if flat else -1, len(values) if flat else self.length)
                    for key, values in columns.items()}
        longest = max(len(row["input_ids"]) for row in rows)

        def padded(values, fill):
            return values + [fill] * (longest - len(values))

        columns = {"input_ids": [padded(row["input_ids"], 0) for row in rows],
                   "labels": [padded(row["labels"], IGNORED) for row in rows]}
        if self.name == "padded":
            columns["attention_mask"] = [padded([1] * len(row["input_ids"]), 0) for row in rows]
        return {key: torch.tensor(values) for key, values in columns.items()}


class StepLog:
    """Writes a line of JSON a step, at once; the first step's seconds are left out."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.last = None

    def add(self, loss, now=None):
        now = now or time.perf_counter()
        json.dump({"loss": float(loss), "seconds": now - self.last if self.last else None}, self.file)
        self.file.write("\n")
        self.file.flush()
        self.last = now
