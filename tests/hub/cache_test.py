"""The cache is the one of huggingface_hub: it finds what we downloaded, we find what it did. And "hub:" paths."""

import json
import os
import subprocess
import sys

import hub_cases
from hub_cases import FILES, MODEL, TAKEN, WEIGHTS
from hub_server import COMMIT

try:
    import huggingface_hub
except ImportError:
    print("SKIP: huggingface_hub isn't installed")
    sys.exit(77)

# In a process of its own: it reads its variables once.
FIND = """
import json, sys, huggingface_hub
arguments = json.loads(sys.argv[1])
print(getattr(huggingface_hub, arguments.pop("function"))(**arguments))
"""


class Cache(hub_cases.HubCase):
    def theirs(self, function, **arguments):
        result = subprocess.run([sys.executable, "-c", FIND, json.dumps({"function": function, **arguments})],
                                env=self.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1"), capture_output=True,
                                text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def lay_out(self, files, ref=True):
        """A snapshot as huggingface_hub leaves it, without our record."""
        self.hub.files[MODEL] = {k: v for k, v in FILES.items() if k in files}
        self.assertEqual(self.download("*").returncode, 0)
        for record in (self.repository / "lorikeet").iterdir():
            record.unlink()
        if not ref:
            (self.repository / "refs" / "main").unlink()
        self.hub.files[MODEL] = dict(FILES)
        self.hub.requests.clear()

    def test_huggingface_hub_finds_what_we_downloaded(self):
        self.assert_whole(self.download())
        self.assertEqual(self.theirs("snapshot_download", repo_id="owner/tiny", local_files_only=True), str(self.snapshot))
        found = self.theirs("hf_hub_download", repo_id="owner/tiny", filename="model.safetensors", local_files_only=True)
        self.assertEqual(found, str(self.snapshot / "model.safetensors"))
        scan = self.theirs("scan_cache_dir", cache_dir=str(self.cache))
        self.assertIn("owner/tiny", scan)
        self.assertIn("warnings=[]", scan)

    def test_we_use_the_blobs_that_huggingface_hub_laid_out(self):
        self.hub.commit = COMMIT
        blobs = self.repository / "blobs"
        self.lay_out(TAKEN)
        (self.snapshot / "model.safetensors").unlink()
        result = self.tool("resolve", "model", "owner/tiny")
        self.assert_whole(result)
        self.assertEqual(self.hub.asked("/resolve/"), [])  # linked, not fetched
        self.assertEqual([path for path, _ in self.hub.requests], [f"/api/models/owner/tiny/revision/{COMMIT}?blobs=true"])
        self.assertEqual(len(list(blobs.iterdir())), 4)

    def test_a_path_is_downloaded_once_and_then_found_without_the_network(self):
        self.assert_refused(self.tool("cached", "model", "owner/tiny"), "is not in the cache", "lorikeet download owner/tiny")
        self.assert_whole(self.tool("resolve", "model", "owner/tiny"))
        self.hub.requests.clear()
        for verb, variables in (("resolve", {}), ("cached", {}), ("resolve", {"HF_HUB_OFFLINE": "yes"})):
            self.assert_whole(self.tool(verb, "model", "owner/tiny", **variables))
            self.assert_whole(self.tool(verb, "model", f"owner/tiny@{COMMIT}", **variables))
        self.assertEqual(self.hub.requests, [])

    def test_what_was_found_stays_when_the_hub_has_something_newer(self):
        self.assert_whole(self.download())
        self.hub.commit = "d" * 40
        self.assert_whole(self.tool("resolve", "model", "owner/tiny"))
        newer = self.download()
        self.assertEqual(newer.stdout.strip(), str(self.snapshot.with_name("d" * 40)))
        self.assertEqual(self.tool("resolve", "model", "owner/tiny").stdout, newer.stdout)

    def test_a_half_snapshot_of_other_tools_is_completed_and_offline_refused(self):
        self.lay_out({"config.json", "tokenizer.json", "tokenizer_config.json"})
        self.assert_refused(self.tool("resolve", "model", "owner/tiny", HF_HUB_OFFLINE="1"), "or not whole", "HF_HUB_OFFLINE is set")
        self.assert_whole(self.tool("resolve", "model", "owner/tiny"))

    def test_a_snapshot_of_other_tools_serves_offline_and_without_a_network(self):
        self.lay_out(TAKEN)
        self.assert_whole(self.tool("resolve", "model", "owner/tiny", HF_HUB_OFFLINE="1"))
        result = self.tool("resolve", "model", "owner/tiny", HF_ENDPOINT="http://127.0.0.1:9")
        self.assert_whole(result)
        self.assertIn("using the snapshot that is there", result.stderr)

    def test_absent_and_offline_says_the_command(self):
        result = self.tool("resolve", "dataset", "owner/rows/data/train.parquet", HF_HUB_OFFLINE="1")
        self.assert_refused(result, "lorikeet download owner/rows --dataset --include 'data/train.parquet'")

    def test_data_sets_bring_data_files_or_those_that_are_named(self):
        self.hub.files = {"datasets/owner/rows": {"data/train.parquet": WEIGHTS, "data/test.parquet": b"12", "x.jsonl.gz": b"1",
                                                  "README.md": b"#", "rows.py": b"code", "dump.pkl": b"p"}}
        snapshot = self.cache / "datasets--owner--rows" / "snapshots" / COMMIT
        result = self.tool("resolve", "dataset", "owner/rows/data/train.parquet")
        self.assertEqual(result.stdout.strip(), str(snapshot / "data" / "train.parquet"), result.stderr)
        self.assertEqual((snapshot / "data" / "train.parquet").read_bytes(), WEIGHTS)
        self.assertFalse((snapshot / "x.jsonl.gz").exists())
        self.assertEqual(self.tool("resolve", "dataset", "owner/rows").stdout.strip(), str(snapshot))
        self.assertEqual({p.name for p in snapshot.rglob("*") if p.is_file()}, {"train.parquet", "test.parquet", "x.jsonl.gz"})
        self.assert_refused(self.tool("resolve", "dataset", "owner/rows/rows.py"), "never downloaded")
        self.assert_refused(self.tool("resolve", "dataset", "owner/rows/../x"), "could lead out of it")
        self.assertEqual(self.theirs("snapshot_download", repo_id="owner/rows", repo_type="dataset", local_files_only=True), str(snapshot))

    def test_their_download_and_ours_meet_in_one_lock(self):
        import fcntl

        self.assert_whole(self.download())
        names = {p.name.removesuffix(".lock") for p in (self.cache / ".locks" / "models--owner--tiny").iterdir()}
        self.assertEqual(names, {p.name for p in (self.repository / "blobs").iterdir()})
        blob = (self.snapshot / "model.safetensors").resolve()
        blob.unlink()
        lock = (self.cache / ".locks" / "models--owner--tiny" / f"{blob.name}.lock").open("r+")
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(self.command("download", "model", "owner/tiny"), env=self.environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "another process downloads model.safetensors" in line:
                break
        blob.write_bytes(WEIGHTS)  # the other one is done
        lock.close()
        out, err = process.communicate(timeout=60)
        self.assert_whole(subprocess.CompletedProcess([], process.returncode, out, err))


if __name__ == "__main__":
    os.umask(0o022)
    hub_cases.main()
