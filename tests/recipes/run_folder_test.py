"""What a run's output folder lets be done next: go on, go on for longer, begin anew, or an error that tells what to do."""

import hashlib
import json
import os
import shutil
import signal
import struct
import sys
import unittest

import harness
from limits_test import patch_tensor

CONSTANT = ["lr_scheduler.name=constant"]


class RunFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        config = cls.programs.work / "config.yaml"
        config.write_text(config.read_text().replace("global: 8", "global: 2"))  # short steps: there are many runs
        cls.constant = cls.trained("constant", *CONSTANT)
        cls.cosine = cls.trained("cosine")

    @classmethod
    def trained(cls, name, *overrides):
        output = cls.programs.work / name
        result = cls.programs.train(output, *overrides)
        assert result.returncode == 0, result.stderr
        return output

    def copy_of(self, folder, name):
        output = self.programs.work / name
        shutil.copytree(folder, output)
        return output

    def unfinished(self, name):
        """The run as if it had been killed after its last checkpoint."""
        output = self.copy_of(self.cosine, name)
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))
        return output

    def require_refused(self, output, *words, overrides=(), code=2):
        before = harness.tree(output)
        result = self.programs.train(output, *overrides)
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(harness.tree(output), before)

    def test_a_finished_run_with_a_constant_rate_goes_on_for_longer_as_if_it_had_never_ended(self):
        output = self.trained("longer", *CONSTANT, "training.max_steps=5")
        result = self.programs.train(output, *CONSTANT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on for longer (training.max_steps: 5 there, 12 now)", result.stderr)
        self.assertIn("resuming after step 5", result.stderr)
        name = "adapter_model.safetensors"
        self.assertEqual((output / name).read_bytes(), (self.constant / name).read_bytes())
        self.assertEqual(harness.metrics(output), harness.metrics(self.constant))

    def test_a_run_whose_rate_falls_to_its_end_cant_be_made_longer_and_the_error_says_what_can_be_done(self):
        self.require_refused(
            self.cosine, "training.max_steps: 12 there, 20 now", "lr_scheduler.name=constant", "lora.init",
            overrides=["training.max_steps=20"],
        )

    def test_a_run_of_as_many_steps_is_the_same_whatever_gives_their_number(self):
        result = self.programs.train(self.copy_of(self.cosine, "as-many"), "training.epochs=7")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)
        self.assertNotIn("longer", result.stderr)

    def test_a_warm_up_that_depends_on_the_length_cant_be_continued_either(self):
        warm_up = [*CONSTANT, "~lr_scheduler.warmup_steps", "lr_scheduler.warmup_ratio=0.2"]
        output = self.trained("ratio", *warm_up, "training.max_steps=5")
        self.require_refused(output, "warm-up is a part of all its steps", "lora.init", overrides=warm_up)

    def test_a_run_that_was_validated_where_a_longer_one_isnt_cant_be_made_longer(self):
        validated = [*CONSTANT, "data.validation.fraction=0.01", "data.validation.every_steps=3"]
        output = self.trained("off-schedule", *validated, "training.max_steps=4")
        self.require_refused(output, "it was validated at its end", "lora.init", overrides=validated)
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))  # killed behind its last step
        self.require_refused(output, "it was validated at its end", overrides=validated)
        output = self.trained("on-schedule", *validated, "training.max_steps=6")
        result = self.programs.train(output, *validated)
        self.assertEqual(result.returncode, 0, result.stderr)
        whole = self.trained("validated-whole", *validated)
        name = "adapter_model.safetensors"
        self.assertEqual((output / name).read_bytes(), (whole / name).read_bytes())
        self.assertEqual(harness.metrics(output), harness.metrics(whole))

    def test_overwrite_replaces_another_run_and_goes_on_with_its_own(self):
        overwrite = "checkpoint.overwrite=true"
        result = self.programs.train(self.copy_of(self.cosine, "own"), overwrite)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)
        output = self.unfinished("own-unfinished")
        result = self.programs.train(output, overwrite)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("resuming after step 12", result.stderr)
        for more in ([*CONSTANT, "training.max_steps=3"], ["checkpoint.resume=never", "training.max_steps=3", *CONSTANT]):
            result = self.programs.train(output, overwrite, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("resuming", result.stderr)
            self.assertNotIn("finished already", result.stderr)
            self.assertEqual(len(harness.metrics(output)), 3)

    def test_a_run_that_fails_in_its_first_step_leaves_the_one_that_it_was_to_replace(self):
        base = self.programs.work / "damaged-base"
        shutil.copytree(harness.EXAMPLE / "base", base)
        patch_tensor(base / "model.safetensors", "model.norm.weight", struct.pack("<H", 0x7FC0))  # NaN in bf16
        output = self.copy_of(self.cosine, "to-replace")
        for resume in ("auto", "never"):
            self.require_refused(output, "[train] step 1: the loss is not finite", code=1,
                                 overrides=[f"model.path={base}", "lora.rank=3", "checkpoint.overwrite=true",
                                            f"checkpoint.resume={resume}"])

    def test_what_replaces_a_run_has_nothing_of_it(self):
        old = self.trained("old-traced", "metrics.profile_steps=[1, 2]", "data.validation.fraction=0.1", *CONSTANT)
        self.assertTrue((old / "best").is_dir() and (old / "trace_step_2.json").exists())
        more = ["metrics.profile_steps=[1]", "training.max_steps=3", "checkpoint.overwrite=true"]
        result = self.programs.train(old, *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        new = self.trained("new-traced", *more)
        names = set(harness.tree(new))
        self.assertIn("trace_step_1.json", names)
        self.assertEqual(set(harness.tree(old)), names)
        for name in ("adapter_model.safetensors", "checkpoints/step_3/adapter_model.safetensors"):
            self.assertEqual((old / name).read_bytes(), (new / name).read_bytes())
        self.assertEqual(harness.metrics(old), harness.metrics(new))

    def test_a_merge_that_fails_leaves_a_finished_run_and_is_tried_again(self):
        output, merge = self.programs.work / "merging", ["checkpoint.save_merged=true", "training.max_steps=3", *CONSTANT]
        weights = (harness.EXAMPLE / "base" / "model.safetensors").stat().st_size
        result = self.programs.train(output, *merge, largest_file=weights - 1000)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("is complete, but merging it failed", result.stderr)
        self.assertTrue(json.loads((output / "run.json").read_text())["finished"])
        self.assertFalse((output / "merged").exists())
        adapter = (output / "adapter_model.safetensors").read_bytes()
        result = self.programs.train(output, *merge)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)
        self.assertEqual((output / "merged" / "model.safetensors").stat().st_size, weights)
        self.assertEqual((output / "adapter_model.safetensors").read_bytes(), adapter)
        before = (output / "merged" / "model.safetensors").read_bytes()
        result = self.programs.train(output, *merge, "training.max_steps=5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotEqual((output / "merged" / "model.safetensors").read_bytes(), before)

    def test_a_finished_run_whose_result_is_gone_or_damaged_writes_it_again(self):
        name = "adapter_model.safetensors"
        damages = {"gone": lambda run: (run / name).unlink(), "empty": lambda run: (run / name).write_bytes(b""),
                   "cut": lambda run: os.truncate(run / name, (run / name).stat().st_size - 1),
                   "config": lambda run: (run / "adapter_config.json").unlink(),
                   "flipped": lambda run: self.flip_a_bit(run / name),
                   "tokenizer": lambda run: (run / "tokenizer_config.json").unlink(),
                   "cut-tokenizer": lambda run: os.truncate(run / "tokenizer.json", 100)}
        for damage, of in damages.items():
            output = self.copy_of(self.cosine, f"damaged-{damage}")
            of(output)
            result = self.programs.train(output)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("written again from the last checkpoint", result.stderr)
            for file in (name, "adapter_config.json", "metrics.jsonl", "tokenizer.json", "tokenizer_config.json"):
                self.assertEqual((output / file).read_bytes(), (self.cosine / file).read_bytes())
            again = self.programs.train(output)
            self.assertIn("finished already", again.stderr)
        output = self.copy_of(self.cosine, "damaged-for-good")
        (output / name).unlink()
        shutil.rmtree(output / "checkpoints")
        self.require_refused(output, f"{name}", "no checkpoint to write it from", "checkpoint.overwrite=true")

    @staticmethod
    def flip_a_bit(file):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)

    def test_a_finished_run_of_a_version_that_recorded_no_hashes_is_still_finished(self):
        output = self.copy_of(self.cosine, "no-hashes")
        run = json.loads((output / "run.json").read_text())
        self.assertIn("adapter_model.safetensors", run.pop("result_files"))
        (output / "run.json").write_text(json.dumps(run))
        self.flip_a_bit(output / "adapter_model.safetensors")
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)

    def test_a_merged_checkpoint_without_its_weights_is_merged_again(self):
        output, merge = self.programs.work / "unmerged", ["checkpoint.save_merged=true", "training.max_steps=3", *CONSTANT]
        result = self.programs.train(output, *merge)
        self.assertEqual(result.returncode, 0, result.stderr)
        weights = (output / "merged" / "model.safetensors").read_bytes()
        (output / "merged" / "model.safetensors").unlink()
        result = self.programs.train(output, *merge)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((output / "merged" / "model.safetensors").read_bytes(), weights)

    def test_resuming_never_refuses_a_finished_run_as_an_unfinished_one(self):
        never = ["checkpoint.resume=never"]
        self.require_refused(self.cosine, "this run, finished", "checkpoint.overwrite=true", overrides=never)
        self.require_refused(self.unfinished("never"), "an unfinished run", "'never'", overrides=never)

    def test_a_link_that_leads_nowhere_is_no_output_folder(self):
        link, target = self.programs.work / "link", self.programs.work / "not-there"
        link.symlink_to(target)
        for output in (link, link / "below"):
            result = self.programs.train(output)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"is a link to '{target}', which isn't there", result.stderr)
        self.assertFalse(target.exists())
        target.mkdir()
        result = self.programs.train(link, "training.max_steps=1", "lr_scheduler.warmup_steps=0")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_fewer_steps_are_another_run(self):
        self.require_refused(self.constant, "other settings", overrides=[*CONSTANT, "training.max_steps=3"])

    def test_paths_given_another_way_or_moved_data_are_the_same_run(self):
        moved = self.programs.work / "moved.jsonl"
        shutil.copy(harness.EXAMPLE / "train.jsonl", moved)
        base = os.path.relpath(harness.EXAMPLE / "base")
        for override in (f"model.path={base}", f"data.train.path={moved}"):
            result = self.programs.train(os.path.relpath(self.cosine), override)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("finished already", result.stderr)

    def test_a_chat_template_is_compared_by_what_it_writes_and_not_by_its_path(self):
        text = "{% for m in messages %}A {{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
        file, moved = self.programs.work / "template.jinja", self.programs.work / "moved.jinja"
        file.write_text(text)
        moved.write_text(text)
        output = self.trained("templated", f"data.chat_template={file}", "training.max_steps=3")
        file.unlink()  # as on another machine
        result = self.programs.train(output, f"data.chat_template={moved}", "training.max_steps=3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)
        moved.write_text(text.replace("A ", "B "))
        for setting, words in ((str(moved), "other data"), ("plain", "other settings (data.chat_template: ")):
            self.require_refused(output, words, overrides=[f"data.chat_template={setting}", "training.max_steps=3"])

    def test_other_validation_rows_are_another_run(self):
        rows = (harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)
        file = self.programs.work / "rows.jsonl"
        file.write_text("".join(rows[:4]))
        validated = [f"data.validation.path={file}", "training.max_steps=3"]
        output = self.trained("validated", *validated)
        file.write_text("".join(rows[:5]))
        self.require_refused(output, "other validation data", overrides=validated)

    def test_a_start_that_was_killed_before_its_first_step_is_no_hindrance_to_another_run(self):
        output = self.programs.work / "begun"
        process = self.programs.start(output, "batch.global=512", "training.epochs=10")
        self.assertTrue(harness.wait_for(lambda: (output / "run.json").exists()))
        harness.stop(process)
        self.assertEqual((output / "metrics.jsonl").read_text() if (output / "metrics.jsonl").exists() else "", "")
        result = self.programs.train(output, "lora.rank=3", "training.max_steps=3")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_start_that_was_killed_while_it_wrote_its_first_file_is_none_either(self):
        output = self.programs.work / "first-file"
        output.mkdir()
        for name in ("run.json.tmp-0123456789abcdef", "run.json.tmp-4711", ".lorikeet-probe-abcDEF"):
            (output / name).write_text("{")
        result = self.programs.train(output, "training.max_steps=3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([p.name for p in output.iterdir() if "tmp" in p.name or "probe" in p.name], [])

    def test_files_of_others_are_still_respected(self):
        output = self.programs.work / "theirs"
        output.mkdir()
        (output / "notes.txt.tmp-4711").write_text("mine")
        self.require_refused(output, "holds 'notes.txt.tmp-4711' but no run of this program")

    def test_a_damaged_run_file_comes_with_advice(self):
        output = self.unfinished("damaged")
        for damage in ("", "{\"finished\": fal", "[]", "{}", "{\"finished\": true}", "{\"finished\": 1, \"identity\": []}"):
            (output / "run.json").write_text(damage)
            self.require_refused(output, "run.json", "was damaged: put a copy of it back", "checkpoint.overwrite=true")

    def test_a_checkpoint_without_its_marker_is_named_at_the_start(self):
        output = self.unfinished("unmarked")
        checkpoint = output / "checkpoints" / "step_12"
        (checkpoint / "lorikeet_checkpoint.json").unlink()
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"'{checkpoint}' lacks the file lorikeet_checkpoint.json", result.stderr)
        shutil.move(checkpoint, self.programs.work / "aside")
        self.assertEqual(self.programs.train(output).returncode, 0)

    def test_a_flipped_bit_in_a_checkpoint_is_found_and_the_one_before_it_offered(self):
        output = self.unfinished("flipped")
        file = output / "checkpoints" / "step_12" / "optimizer.safetensors"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("optimizer.safetensors' has another SHA-256", result.stderr)
        self.assertIn(f"to go on from step 9 instead, remove '{file.parent}'", result.stderr)

    def test_the_best_adapter_must_be_the_one_that_the_run_found(self):
        rows = "".join((harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)[:4])
        file = self.programs.work / "few.jsonl"
        file.write_text(rows)
        validated = [f"data.validation.path={file}", "data.validation.every_steps=3", "checkpoint.keep_last=4"]
        output = self.trained("best", *validated)
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))
        best = output / "best" / "adapter_model.safetensors"
        manifest = output / "best" / "manifest.json"
        listed = manifest.read_text()
        manifest.unlink()
        result = self.programs.train(output, *validated)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"'{output / 'best'}' has no manifest.json, so damage can't be found", result.stderr)
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))
        manifest.write_text(listed)
        content = bytearray(best.read_bytes())
        content[-1] ^= 1
        best.write_bytes(content)
        result = self.programs.train(output, *validated)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("best/adapter_model.safetensors' has another SHA-256", result.stderr)
        self.assertIn("the run can't go on without it: put a copy of the folder back", result.stderr)
        self.assertNotIn("to go on from step", result.stderr)
        shutil.rmtree(output / "best")
        result = self.programs.train(output, *validated)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"the best adapter, of step {run['best_step']}, is not in", result.stderr)

    def test_a_best_adapter_that_a_killed_run_found_later_serves_the_run_that_finds_it_no_more(self):
        # Steps that are repeated needn't have the same bits on a GPU or in other micro-batches.
        file = self.programs.work / "few-again.jsonl"
        file.write_text("".join((harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)[:4]))
        # The rate is so high that the last adapter is not the best.
        validated = [f"data.validation.path={file}", "data.validation.every_steps=1", "optimizer.lr=0.5"]
        output = self.trained("found", *validated)
        run = json.loads((output / "run.json").read_text())
        self.assertLess(run["best_step"], 11)
        best = output / "best" / "best.json"
        manifest = output / "best" / "manifest.json"
        for val_loss, code in ((run["best_val_loss"] - 0.25, 0), (run["best_val_loss"] + 0.25, 2)):
            (output / "run.json").write_text(json.dumps({**run, "finished": False}))
            best.write_text(json.dumps({"step": 11, "val_loss": val_loss}))
            content = json.loads(manifest.read_text())
            content["files"]["best.json"] = {"bytes": best.stat().st_size,
                                             "sha256": hashlib.sha256(best.read_bytes()).hexdigest()}
            manifest.write_text(json.dumps(content))
            result = self.programs.train(output, *validated)
            self.assertEqual(result.returncode, code, result.stderr)
            if code == 0:
                self.assertIn("the adapter is that of step 11, the best validated one", result.stderr)
                now = json.loads((output / "run.json").read_text())
                self.assertEqual((now["best_step"], now["best_val_loss"]), (11, val_loss))
            else:
                self.assertIn("holds the adapter of step 11", result.stderr)

    def test_what_counts_as_longer_is_the_number_of_steps(self):
        one_epoch = [*CONSTANT, "training.epochs=1", "~training.max_steps", "batch.global=400"]
        output = self.trained("epoch", *one_epoch)
        steps = len(harness.metrics(output))
        result = self.programs.train(output, *one_epoch, f"training.max_steps={steps + 2}", "training.epochs=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on for longer", result.stderr)
        self.assertEqual(len(harness.metrics(output)), steps + 2)
        self.require_refused(output, "training.max_steps", overrides=one_epoch)

    def test_an_early_stop_is_in_the_log_and_in_run_json(self):
        file = self.programs.work / "few-rows.jsonl"
        file.write_text("".join((harness.EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)[:4]))
        output = self.programs.work / "early"
        result = self.programs.train(
            output, f"data.validation.path={file}", "data.validation.every_steps=1", "data.validation.patience=2",
            "optimizer.lr=0.5",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        run = json.loads((output / "run.json").read_text())
        step = run["early_stop"]["step"]
        self.assertLess(step, 12)
        self.assertEqual(run["early_stop"]["evaluations_since_best"], 2)
        self.assertIn(f"step {step}: stopped early, 2 validations in a row brought no lower loss", result.stderr)
        self.assertIn(f"done: {step} steps of 12, stopped early", result.stderr)

    def test_a_folder_that_is_deleted_while_the_run_goes_on_ends_it_with_an_error(self):
        for name, later in (("deleted", None), ("replaced", "mkdir")):
            output = self.programs.work / name
            process = self.programs.start(output, "checkpoint.save_every_steps=100", "batch.global=64")
            metrics = output / "metrics.jsonl"
            self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
            process.send_signal(signal.SIGSTOP)
            shutil.rmtree(output)
            if later:
                output.mkdir()
            process.send_signal(signal.SIGCONT)
            self.assertEqual(process.wait(timeout=120), 1)

    def test_a_run_resumed_without_some_of_its_lines_says_so(self):
        output = self.unfinished("lines")
        lines = (output / "metrics.jsonl").read_text().splitlines(keepends=True)
        (output / "metrics.jsonl").write_text("".join(lines[:3]) + "\0\0\0\n" + "".join(lines[5:]))
        result = self.programs.train(output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("dropped line 4", result.stderr)
        self.assertIn("no lines of steps 4 to 5", result.stderr)
        self.assertEqual(len(harness.metrics(output)), 10)

    def test_a_folder_that_cant_be_written_is_the_environments_fault(self):
        # To root every folder is writable but the kernel's own.
        result = self.programs.train("/sys/lorikeet-run")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("can't write into the folder '/sys/lorikeet-run'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
