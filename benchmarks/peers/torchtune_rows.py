"""The parts that torchtune's recipe is configured with: the bench's rows, a tokenizer that is never asked, a step log."""

import json
import time

from torch.utils.data import Dataset
from torchtune.datasets import PackedDataset


class NoTokenizer:
    pad_id = 0


class Rows(Dataset):
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.rows = [json.loads(line) for line in file]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"tokens": self.rows[index]["input_ids"], "labels": self.rows[index]["labels"]}


def rows_dataset(tokenizer, path, packed=False, length=None):
    rows = Rows(path)
    return PackedDataset(rows, max_seq_len=length, padding_idx=tokenizer.pad_id) if packed else rows


class StepLogger:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.last = None

    def log_config(self, config):
        pass

    def log_dict(self, payload, step):
        now = time.perf_counter()
        json.dump({"loss": float(payload["loss"]), "seconds": now - self.last if self.last else None}, self.file)
        self.file.write("\n")
        self.file.flush()
        self.last = now

    def close(self):
        self.file.close()
