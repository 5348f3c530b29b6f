"""Signals and broken streams: a training program ends with the right code, leaves nothing half-made, and never fails for its
log."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import harness
from plan_test import memory

COPIES = 150  # of the example's rows: tokenising them takes long enough for a signal to come meanwhile


def cpu_seconds(process):
    """For which a process has computed, all of its threads together."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Signals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.rows = cls.work / "many.jsonl"
        cls.rows.write_text((harness.EXAMPLE / "train.jsonl").read_text() * COPIES)

    def started(self, output, *overrides):
        """A run with its stderr, which has just opened its model and tokenises."""
        command = self.programs.command(output, f"data.train.path={self.rows}", f"data.cache_dir={output}-cache", *overrides)
        process = subprocess.Popen(command, env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if line.startswith("model: "):
                return process
        self.fail(f"the run ended with {process.wait()} before it opened its model")

    def large(self):
        """Settings of a step with a model, work/large, that takes long enough to merge for a signal to come in between."""
        base, rows = self.work / "large", self.work / "ids.jsonl"
        if not base.exists():
            memory.make_model(base, dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=6, num_attention_heads=12,
                                         num_key_value_heads=12, vocab_size=1000))
            rows.write_text('{"input_ids": [1, 2, 3, 4]}\n' * 8)
        return [f"model.path={base}", f"data.train.path={rows}", "data.train.format=tokens", "training.max_steps=1",
                "lr_scheduler.warmup_steps=0"]

    def end(self, process, how):
        process.send_signal(how)
        said = process.communicate(timeout=60)[1]
        return process.returncode, said

    def test_a_signal_before_the_first_step_exits_130_and_leaves_no_folder(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            process = self.started(self.work / "new" / "deep" / "run")
            self.assertTrue((self.work / "new" / "deep" / "run").exists())
            code, said = self.end(process, how)
            self.assertEqual((code, said), (130, "error: interrupted before the first step; nothing was written to the output "
                                                 "folder\n"))
            self.assertFalse((self.work / "new").exists())

    def test_folders_that_were_there_stay(self):
        output = self.work / "mine"
        output.mkdir()
        self.assertEqual(self.end(self.started(output), signal.SIGTERM)[0], 130)
        self.assertEqual(os.listdir(output), [])

    def test_a_run_that_is_there_stays_as_it_is(self):
        output = self.work / "run"
        result = self.programs.train(output, "training.max_steps=3", f"data.train.path={self.rows}")
        self.assertEqual(result.returncode, 0, result.stderr)
        before = harness.tree(output)
        code, said = self.end(self.started(output, "training.max_steps=3"), signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn("before the first step; the run in the output folder stays as it was", said)
        self.assertEqual(harness.tree(output), before)

    def test_several_processes_end_together_before_the_first_step(self):
        output = self.work / "several"
        command = [str(self.programs.folder / "lorikeet"), "run", "--nproc", "2", "lora_finetune_distributed",
                   *self.programs.command(output)[1:], f"data.train.path={self.rows}", f"data.cache_dir={output}-cache"]
        process = subprocess.Popen(command, env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if line.startswith("model: "):
                break
        code, said = self.end(process, signal.SIGTERM)
        self.assertEqual(code, 130, said)
        self.assertNotIn("error: ", said)
        self.assertFalse(output.exists())

    def test_a_second_signal_exits_130_too(self):
        output = self.work / "twice"
        # The first is only looked at between steps: with steps of all the rows the second comes before that.
        process = subprocess.Popen(self.programs.command(output, "batch.global=1080", "training.max_steps=2", "~lr_scheduler"),
                                   env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertTrue(harness.wait_for((output / "metrics.jsonl").exists))
        # A signal between that and the first step ends the run without one. A step computes for many seconds.
        begin = cpu_seconds(process)
        self.assertTrue(harness.wait_for(lambda: cpu_seconds(process) > begin + 0.5))
        process.send_signal(signal.SIGTERM)
        self.assertTrue(any(line.startswith("interrupted: ") for line in process.stderr))  # it was handled
        process.send_signal(signal.SIGSTOP)  # however fast the step is, it isn't over when the second request comes
        time.sleep(1.1)
        process.send_signal(signal.SIGTERM)
        code, said = self.end(process, signal.SIGCONT)
        self.assertEqual(code, 130)
        self.assertIn("interrupted again, and ended without saving", said)

    def test_a_run_that_overwrites_leaves_the_one_that_is_there_until_its_first_step_is_done(self):
        output = self.work / "old"
        result = self.programs.train(output, "training.max_steps=3")
        self.assertEqual(result.returncode, 0, result.stderr)
        before = harness.tree(output)
        # Steps of all the rows, so that the signal comes before the first one is done.
        command = self.programs.command(output, "batch.global=1080", "training.max_steps=2", "~lr_scheduler",
                                        "checkpoint.overwrite=true")
        for resume in ("auto", "never"):
            process = subprocess.Popen([*command, f"checkpoint.resume={resume}"], env=harness.ENVIRONMENT,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.assertTrue(any(line.startswith("adapter: ") for line in process.stderr))
            begin = cpu_seconds(process)
            self.assertTrue(harness.wait_for(lambda: cpu_seconds(process) > begin + 1.5))
            harness.stop(process)
            process.stderr.close()
            self.assertEqual(harness.tree(output), before)
        process = subprocess.Popen(command, env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertTrue(any(line.startswith("adapter: ") for line in process.stderr))
        begin = cpu_seconds(process)
        self.assertTrue(harness.wait_for(lambda: cpu_seconds(process) > begin + 1.5))
        code, said = self.end(process, signal.SIGTERM)  # saved behind the first step
        self.assertEqual(code, 130, said)
        self.assertIn("interrupted after step 1; a checkpoint was saved, the same command goes on from it", said)
        self.assertFalse((output / "adapter_model.safetensors").exists())
        self.assertEqual(os.listdir(output / "checkpoints"), ["step_1"])
        self.assertEqual([line["step"] for line in harness.metrics(output)], [1])

    def test_a_run_that_never_resumes_says_which_command_goes_on(self):
        output = self.work / "never"
        process = subprocess.Popen(self.programs.command(output, "training.max_steps=100000", "~lr_scheduler",
                                                         "checkpoint.resume=never"),
                                   env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = output / "metrics.jsonl"
        self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
        code, said = self.end(process, signal.SIGTERM)
        self.assertEqual(code, 130, said)
        self.assertIn("a checkpoint was saved, the same command with checkpoint.resume=auto goes on from it", said)

    def test_a_signal_while_a_stopped_run_is_ending_exits_130(self):
        output = self.work / "ending"
        process = subprocess.Popen(self.programs.command(output, "training.max_steps=100000", "~lr_scheduler"),
                                   env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = output / "metrics.jsonl"
        self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
        process.send_signal(signal.SIGTERM)
        # The program's last line: what is left is that its libraries unload, which takes tens of milliseconds.
        self.assertTrue(any("a checkpoint was saved, the same command goes on" in line for line in process.stderr))
        self.assertEqual(self.end(process, signal.SIGTERM), (130, ""))

    def test_a_signal_while_a_run_is_merged_ends_it_without_leftovers_and_the_same_command_merges(self):
        output = self.work / "merging"
        command = self.programs.command(output, *self.large(), "checkpoint.save_merged=true")

        def leftovers():
            return [path for path in output.rglob("*.tmp-*")] if output.exists() else []

        for begun in (False, True):  # in the run itself, and in the same command for the finished one
            process = subprocess.Popen(command, env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.assertTrue(any(line.startswith("merge: ") for line in process.stderr))
            self.assertTrue(harness.wait_for(lambda: any("merged.tmp-" in path.name for path in leftovers()), interval=0.001))
            code, said = self.end(process, signal.SIGINT)
            self.assertEqual(code, 130, said)
            self.assertIn("interrupted: the run writes its result and ends;", said)
            self.assertIn(f"before the base was merged with the adapter in {output}, which is complete; the same command", said)
            self.assertEqual(leftovers(), [], begun)
            self.assertFalse((output / "merged").exists())
            self.assertTrue((output / "adapter_model.safetensors").exists())
        result = harness.run(command, 120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stderr)
        self.assertTrue((output / "merged" / "model.safetensors").exists())

    def test_a_signal_to_a_merge_ends_it_without_leftovers(self):
        run, output = self.work / "merge-run", self.work / "merge-out" / "full"
        result = self.programs.train(run, *self.large())
        self.assertEqual(result.returncode, 0, result.stderr)
        command = [str(self.programs.folder / "lorikeet"), "merge", str(self.work / "large"), str(run), str(output)]

        def begun():
            """A merge that has begun to write."""
            process = subprocess.Popen(command, env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.assertTrue(harness.wait_for(lambda: output.parent.exists() and os.listdir(output.parent) != [], interval=0.001))
            return process

        code, said = self.end(begun(), signal.SIGINT)
        self.assertEqual(code, 130, said)
        self.assertIn("interrupted: what was begun is removed;", said)
        self.assertTrue(said.endswith("error: interrupted\n"), said)
        self.assertEqual(os.listdir(output.parent), [])

        process = begun()
        process.send_signal(signal.SIGTERM)
        self.assertTrue(process.stderr.readline().startswith("interrupted: "))
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.1)
        process.send_signal(signal.SIGTERM)
        code, said = self.end(process, signal.SIGCONT)
        self.assertEqual((code, said), (130, "error: interrupted again, and ended before what was begun was removed; the same "
                                             "command removes it\n"))
        self.assertNotEqual(os.listdir(output.parent), [])

        result = harness.run(command, 120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.listdir(output.parent), [output.name])

    def test_a_request_that_comes_as_several_signals_saves(self):
        # A terminal that closes: the shell sends SIGHUP, and the kernel when the shell ends. A service manager: SIGTERM,
        # then SIGHUP.
        several = ["run", "--nproc", "2", "lora_finetune_distributed"]
        for name, launched, signals in [("hangups", [], [signal.SIGHUP] * 3), ("terms", [], [signal.SIGTERM] * 2),
                                        ("launched-hangups", several, [signal.SIGHUP] * 3)]:
            with self.subTest(name):
                output = self.work / name
                command = self.programs.command(output, "training.max_steps=100000", "~lr_scheduler")
                if launched:
                    command = [str(self.programs.folder / "lorikeet"), *launched, *command[1:]]
                process = subprocess.Popen(command, env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"},
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                metrics = output / "metrics.jsonl"
                self.assertTrue(harness.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0))
                for number in signals[1:]:
                    process.send_signal(number)
                    time.sleep(0.01)
                code, said = self.end(process, signals[0])
                self.assertEqual(code, 130, said)
                self.assertNotIn("without saving", said)
                step = len(harness.metrics(output))
                self.assertGreater(step, 0)
                self.assertTrue((output / "checkpoints" / f"step_{step}").is_dir(), said)

    def test_a_closed_stderr_costs_nothing(self):
        output = self.work / "closed"
        command = " ".join(map(str, self.programs.command(output)))
        result = subprocess.run(["sh", "-c", f"exec {command} 0<&- >&- 2>&-"], env=harness.ENVIRONMENT, timeout=120, check=False)
        self.assertEqual(result.returncode, 0)
        self.assertTrue((output / "adapter_model.safetensors").exists())
        for file, content in harness.tree(output).items():
            self.assertNotIn(b"tokens/s", content, file)  # no log in a file that got its number

    def test_a_reader_of_stderr_that_ends_costs_nothing(self):
        output = self.work / "head"
        single = self.programs.command(output)
        several = [str(self.programs.folder / "lorikeet"), "run", "--nproc", "2", "lora_finetune_distributed",
                   *self.programs.command(self.work / "head2")[1:]]
        for command, folder in ((single, output), (several, self.work / "head2")):
            process = subprocess.Popen(command, env=harness.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            process.stderr.readline()
            process.stderr.close()
            self.assertEqual(process.wait(timeout=120), 0)
            self.assertTrue((folder / "adapter_model.safetensors").exists())

    def test_a_verbs_result_that_has_no_stdout_is_an_error_still(self):
        result = subprocess.run(["sh", "-c", f"exec {self.programs.folder}/lorikeet ls >&-"], env=harness.ENVIRONMENT,
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 3)
        self.assertIn("can't write all of the output", result.stderr)

    def test_on_a_terminal_each_tenth_of_a_run_keeps_its_line(self):
        code, seen = harness.on_terminal(self.programs.command(self.work / "tty", "training.max_steps=20"))
        self.assertEqual(code, 0, seen)
        kept = [int(step) for step in re.findall(r"step (\d+)/20 [^\r\n]*\r\n", seen)]
        self.assertEqual(kept, list(range(2, 21, 2)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
