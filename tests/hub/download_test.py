"""Downloads from a server with faults: what arrives is whole, and what isn't whole never looks so."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
import unittest

import hub_cases
from hub_cases import FILES, MODEL, TAKEN, TOKEN, WEIGHTS
from hub_server import COMMIT, Hub, git_sha1

SHA256 = hashlib.sha256(WEIGHTS).hexdigest()


class Download(hub_cases.HubCase):
    def test_a_model_brings_safetensors_configs_tokenizer_and_template_but_no_pickle_and_no_code(self):
        self.assert_whole(self.download())
        self.assertEqual(self.hub.asked(".bin") + self.hub.asked(".py") + self.hub.asked("onnx"), [])
        before = len(self.hub.requests)
        self.assert_whole(self.download())  # again: the list alone
        self.assertEqual(len(self.hub.requests), before + 1)

    def test_globs_choose_files_but_never_what_may_run_code(self):
        result = self.download("*.json", "*.bin", "onnx/")
        self.assert_whole(result, ["config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model.onnx"])
        self.assertIn("pytorch_model.bin", result.stderr)
        self.assert_refused(self.download("*.bin"), "pytorch_model.bin may run code when opened")
        self.assert_refused(self.download("*.gguf"), "no file to download", "config.json")

    def test_a_model_of_pickles_alone_is_refused(self):
        del self.hub.files[MODEL]["model.safetensors"]
        self.assert_refused(self.download(), "no safetensors weights", "pytorch_model.bin", "refs/pr/N")

    def test_a_connection_that_is_cut_goes_on_where_it_stopped(self):
        self.hub.faults["model.safetensors"] = [{"cut": 1000}, {"cut": 50000}, {"cut": 7}]
        self.assert_whole(self.download())
        ranges = [headers.get("Range") for _, headers in self.hub.asked("model.safetensors")]
        self.assertEqual(ranges, [None, "bytes=1000-", "bytes=51000-", "bytes=51007-"])

    def test_a_download_that_was_killed_goes_on_where_it_stopped(self):
        self.hub.faults["model.safetensors"] = [{"cut": 100000}, {"stall": 30}]
        process = subprocess.Popen(self.command("download", "model", "owner/tiny"), env=self.environment(HF_HUB_DOWNLOAD_TIMEOUT="60"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(self.hub.asked("model.safetensors")) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assert_nothing_taken_for_whole()
        self.assert_whole(self.download())
        self.assertEqual(self.hub.asked("model.safetensors")[-1][1].get("Range"), "bytes=100000-")

    def test_a_server_that_knows_no_ranges_sends_all_again(self):
        self.hub.faults["model.safetensors"] = [{"cut": 1000}, {"ignore_range": True}]
        self.assert_whole(self.download())

    def test_bytes_of_another_place_are_not_taken(self):
        self.hub.faults["model.safetensors"] = [{"cut": 1000}, {"wrong_range": True}]
        self.assert_whole(self.download())

    def test_a_stalled_connection_is_cut_and_continued(self):
        self.hub.faults["model.safetensors"] = [{"cut": 5000}, {"stall": 4}]
        self.assert_whole(self.download())

    def test_wrong_lengths_end_with_an_error_and_no_blob(self):
        for length, says in ((9, "the repository's list says 307200"), (-9, "sends 307191 bytes")):
            self.hub.faults["model.safetensors"] = [{"length": length, "always": True}]
            self.assert_refused(self.download(), says, "4 attempts", code=3)
            self.assert_nothing_taken_for_whole()

    def test_a_wrong_checksum_is_fetched_once_more_and_then_an_error(self):
        wrong = b"x" + WEIGHTS[1:]
        self.hub.faults["model.safetensors"] = [{"body": wrong}]
        self.assert_whole(self.download())
        self.assertEqual(len(self.hub.asked("model.safetensors")), 2)

    def test_a_checksum_that_stays_wrong_leaves_nothing_of_the_file(self):
        for path, sort in (("model.safetensors", SHA256), ("config.json", git_sha1(FILES["config.json"]))):
            self.hub.faults[path] = [{"body": b"x" + FILES[path][1:], "always": True}]
            self.assert_refused(self.download(), "another checksum", sort, code=3)
            self.assert_nothing_taken_for_whole(path)
            self.assertEqual(list(self.repository.rglob(sort + "*")), [])
            self.hub.faults.clear()
            shutil.rmtree(self.repository)

    def test_rubbish_in_a_partial_file_is_found_by_the_checksum(self):
        blobs = self.repository / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{SHA256}.incomplete").write_bytes(b"y" * 5000)
        self.assert_whole(self.download())
        (self.snapshot / "model.safetensors").unlink()
        (blobs / SHA256).unlink()
        (blobs / f"{SHA256}.incomplete").write_bytes(WEIGHTS + b"z")  # longer than the file
        self.assert_whole(self.download())

    def test_a_blob_of_another_size_is_fetched_again(self):
        self.assert_whole(self.download())
        blob = self.repository / "blobs" / SHA256
        blob.write_bytes(b"cut by a full disk")
        self.assert_whole(self.download())

    def test_a_redirect_to_another_host_goes_without_the_token(self):
        with Hub({"cdn": {"w": WEIGHTS}}) as cdn:
            self.hub.faults["model.safetensors"] = [{"redirect": cdn.url + "/cdn/w?signature=1"}]
            cdn.faults["/cdn/w?signature=1"] = []
            cdn.files["cdn"]["w?signature=1"] = WEIGHTS
            self.assert_whole(self.download(HF_TOKEN=TOKEN))
            self.assertEqual([headers.get("Authorization") for _, headers in cdn.requests], [None])
        for path, headers in self.hub.requests:
            self.assertEqual(headers.get("Authorization"), f"Bearer {TOKEN}", path)

    def test_a_redirect_within_the_host_keeps_the_token_and_circles_end(self):
        self.hub.files["cdn"] = {"w": WEIGHTS}
        self.hub.faults["model.safetensors"] = [{"redirect": "/cdn/w"}]
        self.assert_whole(self.download(HF_TOKEN=TOKEN))
        self.assertEqual(self.hub.asked("/cdn/")[0][1].get("Authorization"), f"Bearer {TOKEN}")
        (self.repository / "blobs" / SHA256).unlink()
        self.hub.faults["model.safetensors"] = [{"redirect": f"/owner/tiny/resolve/{COMMIT}/model.safetensors", "always": True}]
        self.assert_refused(self.download(), "more than 10 redirects", code=3)

    def test_the_token_file_is_read_and_not_printed(self):
        (self.cache / "home").mkdir()
        (self.cache / "home" / "token").write_text(TOKEN + "\n")
        self.assert_whole(self.download())
        self.assertEqual(self.hub.requests[0][1].get("Authorization"), f"Bearer {TOKEN}")
        self.assert_refused(self.download(HF_TOKEN=TOKEN + " \x01"), "HF_TOKEN: expected a token")

    def test_each_refusal_says_what_to_do(self):
        for status, headers, says in (
            (401, {"X-Error-Code": "RepoNotFound"}, ["there is no such model", "or it is private", "set HF_TOKEN"]),
            (401, {"X-Error-Code": "GatedRepo"}, ["access is gated", "accept its terms at", "/owner/tiny", "no token was sent"]),
            (403, {"X-Error-Code": "GatedRepo"}, ["access is gated"]),
            (404, {"X-Error-Code": "RepoNotFound"}, ["there is no such model", "--dataset"]),
            (404, {"X-Error-Code": "RevisionNotFound"}, ["no revision 'main'", "lists branches and tags"]),
        ):
            self.hub.faults["list"] = [{"status": status, "headers": headers}]
            self.assert_refused(self.download(), f"({status} for the list of files)", *says)
        self.hub.faults["list"] = [{"status": 403, "headers": {"X-Error-Code": "GatedRepo"}}]
        self.assert_refused(self.download(HF_TOKEN=TOKEN), "the token that was sent isn't accepted")
        self.hub.faults["model.safetensors"] = [{"status": 404, "headers": {"X-Error-Code": "EntryNotFound"}}]
        self.assert_refused(self.download(), "doesn't hold model.safetensors (404")
        self.assert_nothing_taken_for_whole()

    def test_too_many_requests_are_waited_out_as_the_server_says(self):
        self.hub.faults["list"] = [{"status": 429, "headers": {"Retry-After": "1"}}]
        self.hub.faults["config.json"] = [{"status": 429, "headers": {"RateLimit": '"resolvers";r=0;t=1'}}]
        result = self.download()
        self.assert_whole(result)
        self.assertEqual(result.stderr.count("the server answers 429; again in 1.0 s"), 2, result.stderr)
        self.hub.faults["list"] = [{"status": 429, "headers": {"Retry-After": "900"}}]
        self.assert_refused(self.download(), "asks to wait 15 min", code=3)

    def test_a_failing_server_is_asked_again_a_bounded_number_of_times(self):
        self.hub.faults["list"] = [{"status": 503}, {"status": 500}]
        self.hub.faults["model.safetensors"] = [{"status": 502}, {"cut": 0}]
        self.assert_whole(self.download())
        (self.repository / "blobs" / SHA256).unlink()
        before = len(self.hub.asked("model.safetensors"))
        self.hub.faults["model.safetensors"] = [{"status": 504, "always": True}]
        self.assert_refused(self.download(), "the server answers 504 for model.safetensors", code=3)
        self.assertEqual(len(self.hub.asked("model.safetensors")), before + 4)

    def test_nobody_listening_is_an_error_of_the_environment(self):
        self.assert_refused(self.download(HF_ENDPOINT="http://127.0.0.1:9"), "can't get the list of files", "4 attempts", code=3)
        self.assert_refused(self.download(HF_ENDPOINT="ftp://x"), "HF_ENDPOINT: expected a URL")

    def test_offline_says_the_command(self):
        self.assert_refused(self.download(HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE is set", "lorikeet download owner/tiny")
        self.assertEqual(self.hub.requests, [])

    def test_names_that_lead_out_of_the_folder_write_nothing(self):
        listed = self.hub.siblings(MODEL)
        for name in ("../evil.json", "/etc/evil.json", "a/../../evil.json", "a//b.json", "..\\evil.json", "a\u0001.json", ""):
            self.hub.listed[MODEL] = [*listed, {"rfilename": name, "size": 1, "blobId": "0" * 40}]
            self.assert_refused(self.download(), "could lead out of it")
        for entry, says in (
            ({"rfilename": "config.json", "size": 1, "blobId": "0" * 40}, "listed twice"),
            ({"rfilename": "config.json/x", "size": 1, "blobId": "0" * 40}, "both a file and a folder"),
            ({"rfilename": "x.json", "size": 1, "blobId": "../../x"}, "a checksum in hexadecimal"),
            ({"rfilename": "x.json", "size": -1, "blobId": "0" * 40}, "at least 0"),
        ):
            self.hub.listed[MODEL] = [*listed, entry]
            self.assert_refused(self.download(), says)
        self.hub.listed[MODEL] = None
        self.hub.commit = "../../../evil"
        self.assert_refused(self.download(), "a commit, 40 hexadecimal digits")
        self.assertEqual(list(self.cache.rglob("*evil*")) + list(self.cache.parent.glob("evil*")), [])
        self.assertFalse(self.repository.exists())

    def test_two_processes_that_download_the_same_at_once_both_end_with_the_whole(self):
        self.hub.faults["model.safetensors"] = [{"cut": 100000}, {"stall": 0.5}]
        processes = [
            subprocess.Popen(self.command("download", "model", "owner/tiny"), env=self.environment(HF_HUB_DOWNLOAD_TIMEOUT="30"),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        said = ""
        for process in processes:
            out, err = process.communicate(timeout=60)
            said += err
            self.assert_whole(subprocess.CompletedProcess([], process.returncode, out, err))
        self.assertIn("another process downloads", said)
        self.assertEqual([h.get("Range") for _, h in self.hub.asked("model.safetensors")], [None, "bytes=100000-"])

    def test_a_full_disk_is_an_error_and_leaves_no_whole_file(self):
        def limit():
            import resource  # in the child

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

        result = subprocess.run(self.command("download", "model", "owner/tiny"), env=self.environment(), capture_output=True,
                                text=True, timeout=60, check=False, preexec_fn=limit)
        self.assert_refused(result, "can't write", "File too large", "HF_HUB_CACHE", code=3)
        self.assert_nothing_taken_for_whole()
        self.assert_whole(self.download())

    def test_files_of_one_content_are_one_blob(self):
        self.hub.files[MODEL]["special_tokens_map.json"] = b"{}"
        self.assert_whole(self.download(), TAKEN | {"special_tokens_map.json"})
        self.assertEqual(len(list((self.repository / "blobs").iterdir())), 4)


if __name__ == "__main__":
    os.umask(0o022)
    hub_cases.main()
