"""A run that is killed or interrupted goes on as if nothing had happened."""

import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import unittest

import harness

KILLS = int(os.environ.get("LORIKEET_TEST_KILLS", "6"))  # the full count is fifty


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.whole = cls.programs.work / "whole"
        begin = time.monotonic()
        result = cls.programs.train(cls.whole)
        cls.seconds = time.monotonic() - begin
        assert result.returncode == 0, result.stderr

    def require_equal_to_whole(self, output):
        last = pathlib.Path("checkpoints") / "step_12"
        for name in ("adapter_model.safetensors", last / "optimizer.safetensors"):
            self.assertEqual((output / name).read_bytes(), (self.whole / name).read_bytes(), name)
        self.assertEqual(harness.metrics(output), harness.metrics(self.whole))

    def test_killed_at_random_moments_and_resumed_gives_the_same_bytes(self):
        # One run is killed again and again until it ends by itself; then another begins. Moments are from before the
        # first byte is read to the end, so that every one of them falls into a living run.
        moments = random.Random(7)
        runs, killed = 0, 0
        while killed < KILLS:
            runs += 1
            output = self.programs.work / f"killed{runs}"
            while not self.run_until(output, moments.uniform(0.05, self.seconds)):
                killed += 1
            self.require_equal_to_whole(output)
        print(f"{killed} kills in {runs} runs", file=sys.stderr)

    def run_until(self, output, seconds):
        """Starts or continues a run and kills it after that time; True when it was done before."""
        process = self.programs.start(output)
        if harness.wait_for(lambda: process.poll() is not None, seconds):
            self.assertEqual(process.wait(), 0)
            return True
        harness.stop(process)
        return False

    def test_a_signal_saves_a_checkpoint_and_exits_130(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests run under nohup
        for number, how in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            output = self.programs.work / f"interrupted{number}"
            process = self.programs.start(output, "checkpoint.save_every_steps=100")
            metrics = output / "metrics.jsonl"
            self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
            self.assertEqual(harness.stop(process, how), 130)
            self.assertEqual(len(list((output / "checkpoints").glob("step_*"))), 1)
            result = self.programs.train(output, "checkpoint.save_every_steps=100")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(
                (output / "adapter_model.safetensors").read_bytes(),
                (self.whole / "adapter_model.safetensors").read_bytes(),
            )

    def test_nohup_keeps_a_run_going_when_its_terminal_is_closed(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            output = self.programs.work / "nohup"
            process = self.programs.start(output)
            metrics = output / "metrics.jsonl"
            self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
            process.send_signal(signal.SIGHUP)
            self.assertEqual(process.wait(60), 0)
        finally:
            signal.signal(signal.SIGHUP, before)
        self.require_equal_to_whole(output)

    def test_other_micro_batches_go_on_with_a_warning_and_nearly_the_same_losses(self):
        output = self.programs.work / "regrouped"
        process = self.programs.start(output)
        metrics = output / "metrics.jsonl"
        self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
        harness.stop(process, signal.SIGTERM)
        done = len(harness.metrics(output))
        self.assertLess(done, 12)
        result = self.programs.train(output, "batch.micro_tokens=256", "data.packing=false")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"resuming after step {done}", result.stderr)
        self.assertIn("goes on with other micro-batches (", result.stderr)
        for one, other in zip(harness.metrics(output), harness.metrics(self.whole), strict=True):
            self.assertLess(abs(one["loss"] - other["loss"]), 1e-2 * other["loss"])

    def unfinished_copy(self, name, **facts):
        """The whole run as if it had been killed after its last checkpoint, with other facts in its run.json."""
        output = self.programs.work / name
        shutil.copytree(self.whole, output)
        self.mark_unfinished(output, **facts)
        return output

    def mark_unfinished(self, output, **facts):
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False, **facts}))

    def test_automatic_micro_batches_stay_as_the_run_began_with_them(self):
        self.assertEqual(json.loads((self.whole / "run.json").read_text())["micro_tokens"], 2048)
        output = self.unfinished_copy("micro", micro_tokens=512)  # less memory was free when it began
        shutil.rmtree(output / "checkpoints" / "step_12")
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("micro-batches of at most 512 tokens", result.stderr)
        self.assertEqual(json.loads((output / "run.json").read_text())["micro_tokens"], 512)

    def test_a_run_goes_on_with_the_same_bits_however_memory_is_saved(self):
        for name, grade, offload, taken in (("saving", "mlp", "both", ("mlp", "both")), ("auto", "auto", "auto", ("none", "none"))):
            output = self.unfinished_copy(name)
            shutil.rmtree(output / "checkpoints" / "step_12")
            result = self.programs.train(output, f"training.activation_checkpointing={grade}", f"training.offload={offload}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("resuming after step 9", result.stderr)
            self.require_equal_to_whole(output)
            facts = json.loads((output / "run.json").read_text())
            self.assertEqual((facts["activation_checkpointing"], facts["offload"]), taken)

    def test_a_resumed_run_leaves_the_files_of_one_that_never_stopped(self):
        template = self.programs.work / "template.jinja"
        template.write_text("{% for m in messages %}B {{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}")
        # A base with a template of its own, and one without.
        for name, own in (("own", {"chat_template": template.read_text().replace("B", "A")}), ("none", {})):
            base = self.programs.work / f"base-{name}"
            shutil.copytree(harness.EXAMPLE / "base", base)
            config = json.loads((base / "tokenizer_config.json").read_text())
            (base / "tokenizer_config.json").write_text(json.dumps({**config, **own}))
            whole, resumed = self.programs.work / f"template-{name}", self.programs.work / f"template-{name}-resumed"
            settings = [f"model.path={base}", f"data.chat_template={template}", "training.max_steps=6"]
            result = self.programs.train(whole, *settings)
            self.assertEqual(result.returncode, 0, result.stderr)
            shutil.copytree(whole, resumed)
            self.mark_unfinished(resumed)
            shutil.rmtree(resumed / "checkpoints" / "step_6")
            for said, damage in (("resuming after step 3", "adapter_config.json"), ("written again", "chat_template.jinja")):
                (resumed / damage).unlink()
                result = self.programs.train(resumed, *settings)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(said, result.stderr)
                self.assertEqual(self.top_level(resumed), self.top_level(whole))
            self.assertEqual(json.loads((whole / "tokenizer_config.json").read_text())["chat_template"], template.read_text())

    def top_level(self, run):
        """The run's own files without its path, and without the two that have times in them."""
        return {name: content.replace(bytes(run), b"RUN") for name, content in harness.tree(run).items()
                if "/" not in name and name not in ("run.json", "metrics.jsonl")}

    def test_a_checkpoint_that_was_cut_is_refused_with_the_way_out(self):
        output = self.unfinished_copy("cut")
        newest = output / "checkpoints" / "step_12"
        os.truncate(newest / "optimizer.safetensors", 100)
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"to go on from step 9 instead, remove '{newest}'", result.stderr)
        shutil.rmtree(newest)
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.require_equal_to_whole(output)

    def test_a_finished_run_says_so_and_changes_nothing(self):
        before = (self.whole / "run.json").read_bytes()
        result = self.programs.train(self.whole)
        self.assertEqual(result.returncode, 0)
        self.assertIn("finished already", result.stderr)
        self.assertEqual((self.whole / "run.json").read_bytes(), before)

    def test_other_settings_in_the_same_folder_are_an_error_that_names_them(self):
        result = self.programs.train(self.whole, "optimizer.lr=1e-3")
        self.assertEqual(result.returncode, 2)
        self.assertIn("optimizer.lr", result.stderr)

    def test_a_rank_that_isnt_the_start_adapters_is_an_error(self):
        result = self.programs.train(self.programs.work / "other", f"lora.init={self.whole}", "lora.rank=8")
        self.assertEqual(result.returncode, 2)
        self.assertIn("lora.rank", result.stderr)
        self.assertFalse((self.programs.work / "other" / "adapter_model.safetensors").exists())

    def test_keep_last_leaves_the_newest(self):
        names = sorted(p.name for p in (self.whole / "checkpoints").iterdir())
        self.assertEqual(names, ["step_12", "step_9"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
