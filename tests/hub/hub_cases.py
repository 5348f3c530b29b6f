"""What the tests of downloads share: a model on the server, a cache of its own, the tool."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import hub_server

TOKEN = "hf_secretsecretsecret"
MODEL = "models/owner/tiny"
WEIGHTS = bytes(range(256)) * 1200
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"a pickle",
    "modeling_tiny.py": b"print('code')",
    "onnx/model.onnx": b"x",
}
TAKEN = {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"}


class HubCase(unittest.TestCase):
    def setUp(self):
        self.hub = self.enterContext(hub_server.Hub({MODEL: dict(FILES)}))
        self.cache = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lorikeet-hub-")))
        self.repository = self.cache / "models--owner--tiny"
        self.snapshot = self.repository / "snapshots" / hub_server.COMMIT

    def environment(self, **variables):
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        return {**plain, "HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "HF_HOME": str(self.cache / "home"),
                "HF_HUB_DOWNLOAD_TIMEOUT": "1", "NO_PROXY": "*", "no_proxy": "*", **variables}

    def command(self, *arguments):
        return [os.path.abspath(sys.argv[1]), *arguments]

    def tool(self, *arguments, **variables):
        result = subprocess.run(self.command(*arguments), env=self.environment(**variables), capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        return result

    def download(self, *globs, **variables):
        return self.tool("download", "model", "owner/tiny", *globs, **variables)

    def assert_whole(self, result, files=TAKEN):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.strip(), str(self.snapshot))
        self.assertEqual({str(p.relative_to(self.snapshot)) for p in self.snapshot.rglob("*") if not p.is_dir()}, set(files))
        for path in files:
            self.assertEqual((self.snapshot / path).read_bytes(), self.hub.files[MODEL][path])
        self.assertEqual(list(self.repository.rglob("*.incomplete")), [])
        self.assertEqual((self.repository / "refs" / "main").read_text(), hub_server.COMMIT)

    def assert_refused(self, result, *says, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)

    def assert_nothing_taken_for_whole(self, path="model.safetensors"):
        self.assertFalse((self.snapshot / path).exists())
        self.assertFalse((self.repository / "refs" / "main").exists())
        content = self.hub.files[MODEL][path]
        for digest in (hub_server.git_sha1(content), hashlib.sha256(content).hexdigest()):
            self.assertFalse((self.repository / "blobs" / digest).exists())
        self.assertEqual(self.tool("cached", "model", "owner/tiny").returncode, 2)


def main():
    unittest.main(argv=sys.argv[:1])
