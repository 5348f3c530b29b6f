"""A data module for litgpt that gives the bench's rows in their order: `litgpt finetune_lora --data litgpt_rows.Rows`."""

import json

from litgpt.data import DataModule, get_sft_collate_fn
from litgpt.prompts import Default
from torch import tensor
from torch.utils.data import DataLoader


class Rows(DataModule):
    def __init__(self, path: str = ""):
        super().__init__()
        self.path, self.batch_size, self.prompt_style = path, 1, Default()

    def connect(self, tokenizer=None, batch_size=1, max_seq_length=None):
        self.batch_size = batch_size

    def setup(self, stage=""):
        with open(self.path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.rows = [{"input_ids": tensor(row["input_ids"]), "labels": tensor(row["labels"]),
                      "token_counts": {"raw": len(row["input_ids"]), "raw_plus_prompt_template": len(row["input_ids"])}}
                     for row in rows]

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=self.batch_size, shuffle=False, collate_fn=get_sft_collate_fn())

    def val_dataloader(self):
        """One short row: litgpt runs a validation before the first step."""
        shortest = min(self.rows, key=lambda row: len(row["labels"]))
        return DataLoader([shortest], batch_size=1, collate_fn=get_sft_collate_fn())
