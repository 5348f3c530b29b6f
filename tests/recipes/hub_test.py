"""A model named by the Hub's name is downloaded, trained from its cache, and named so in the adapter."""

import json
import os
import pathlib
import sys
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "hub"))
import hub_server  # noqa: E402


class HubPaths(unittest.TestCase):
    def setUp(self):
        self.programs = harness.Programs(os.path.abspath(sys.argv[1]))
        base = harness.EXAMPLE / "base"
        rows = b"".join((harness.EXAMPLE / "train.jsonl").read_bytes().splitlines(keepends=True)[:32])
        self.hub = self.enterContext(hub_server.Hub({
            "models/owner/tiny": {path.name: path.read_bytes() for path in base.iterdir()},
            "datasets/owner/rows": {"train.jsonl": rows},
        }))
        self.cache = self.programs.work / "hub"
        harness.ENVIRONMENT.update({"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "NO_PROXY": "*"})

    def test_a_run_downloads_what_its_paths_name_and_the_adapter_says_the_hubs_name(self):
        output = self.programs.work / "run"
        paths = ("model.path=hub:owner/tiny", "data.train.path=hub:owner/rows/train.jsonl", "training.max_steps=3")
        refused = self.programs.verb("validate", self.programs.work / "config.yaml", *paths)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("lorikeet download owner/tiny", refused.stderr)
        self.assertFalse((self.cache / "models--owner--tiny").exists())  # validate writes nothing

        trained = self.programs.train(output, *paths)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        adapter = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(adapter["base_model_name_or_path"], "owner/tiny")
        self.assertEqual(self.programs.verb("validate", self.programs.work / "config.yaml", *paths).returncode, 0)

        self.hub.requests.clear()
        found = self.programs.verb("download", "owner/tiny")
        self.assertEqual(found.returncode, 0, found.stderr)
        snapshot = self.cache / "models--owner--tiny" / "snapshots" / hub_server.COMMIT
        self.assertEqual(found.stdout, f"{snapshot}\n")
        self.assertEqual(len(self.hub.requests), 1)  # the list alone: the run's files are used
        ids = self.programs.verb("tokenize", "hub:owner/tiny", stdin='"a"\n')
        self.assertEqual(ids.stdout, self.programs.verb("tokenize", pathlib.Path(snapshot), stdin='"a"\n').stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
