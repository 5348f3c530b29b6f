"""Runs over folders, tables and mixtures of rows train on the tokens that the same rows in one file give."""

import csv
import json
import os
import sys
import unittest

import harness

ROWS = [json.loads(line) for line in (harness.EXAMPLE / "train.jsonl").read_text().splitlines()[:48]]
QUICK = ("training.max_steps=4", "checkpoint.save_every_steps=null")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["instruction", "input", "output"])
        writer.writeheader()
        writer.writerows(rows)
    return path


class DataSources(unittest.TestCase):
    def setUp(self):
        self.programs = harness.Programs(os.path.abspath(sys.argv[1]))
        self.work = self.programs.work

    def set_train(self, sources):
        config = self.work / "config.yaml"
        given = f"train: {{ path: {harness.EXAMPLE / 'train.jsonl'}, format: alpaca }}"
        text = config.read_text()
        self.assertIn(given, text)
        config.write_text(text.replace(given, f"train: {sources}"))

    def train(self, name, *overrides):
        done = self.programs.train(self.work / name, *QUICK, *overrides)
        self.assertEqual(done.returncode, 0, done.stderr)
        return harness.metrics(self.work / name), done.stdout + done.stderr

    def test_a_folder_of_tables_trains_as_one_file_of_json_lines(self):
        lines = write_lines(self.work / "rows.jsonl", ROWS)
        folder = self.work / "tables"
        folder.mkdir()
        write_table(folder / "train-00000.csv", ROWS[:20])
        write_table(folder / "train-00001.csv", ROWS[20:])
        write_table(folder / "test-00000.csv", ROWS[:1])
        of_lines, _ = self.train("of_lines", f"data.train.path={lines}")
        of_tables, said = self.train("of_tables", f"data.train.path={folder}")
        self.assertIn("48 rows", said)
        self.assertEqual(of_tables, of_lines)

    def test_a_mixture_takes_its_sources_by_weight(self):
        first = write_lines(self.work / "first.jsonl", ROWS[:30])
        second = write_table(self.work / "second.csv", ROWS[30:])
        self.set_train(f"[{{ path: {first}, weight: 2 }}, {{ path: {second}, weight: 2 }}]")
        _, said = self.train("mixture")
        self.assertIn("together 36 examples", said)  # 18 of each: no row of the smaller source repeats

    def test_validation_rows_beside_several_sources_need_a_formats_own_keys(self):
        asked = [{"question": row["instruction"], "answer": row["output"]} for row in ROWS]
        one = write_lines(self.work / "asked.jsonl", asked)
        other = write_lines(self.work / "rows.jsonl", ROWS)
        self.set_train(f"[{{ path: {one}, columns: {{ prompt: question, completion: answer }} }}, {{ path: {other} }}]")
        validated = f"data.validation.path={one}"
        for result in (self.programs.train(self.work / "refused", validated),
                       self.programs.verb("validate", self.work / "config.yaml", validated)):
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("error: [data.validation.path] [data] line 1 of asked.jsonl: found 'question', 'answer'", result.stderr)
            self.assertIn("with several sources no such setting holds for the validation rows", result.stderr)
            self.assertIn("data.validation.fraction", result.stderr)
        absent = self.programs.verb("validate", self.work / "config.yaml", "data.validation.path=no.jsonl")
        self.assertNotIn("with several sources", absent.stderr)
        self.train("held-out", "data.validation.fraction=0.25")
        self.train("other", f"data.validation.path={other}")

    def test_a_mixture_with_an_absent_source_is_refused_before_the_model_is_opened(self):
        self.set_train("[{ path: nowhere.csv }]")
        refused = self.programs.train(self.work / "absent")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("nowhere.csv", refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
