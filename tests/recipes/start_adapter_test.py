"""A run that starts from an adapter (lora.init) is known by what that adapter holds, wherever it lies."""

import json
import shutil
import subprocess
import sys
import unittest

import harness

ADAPTER = "adapter_model.safetensors"
STEPS = "training.max_steps=6"


class StartAdapter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.one, cls.other = cls.trained("one", "training.max_steps=3"), cls.trained("other", "training.max_steps=4")
        cls.init = cls.work / "init"
        cls.put(cls.one)
        cls.whole = cls.trained("whole", STEPS, f"lora.init={cls.init}")

    @classmethod
    def trained(cls, name, *overrides):
        output = cls.work / name
        result = cls.programs.train(output, *overrides)
        assert result.returncode == 0, result.stderr
        return output

    @classmethod
    def put(cls, adapter):
        """Makes the folder that the run starts from hold this adapter."""
        shutil.rmtree(cls.init, ignore_errors=True)
        shutil.copytree(adapter, cls.init)

    def setUp(self):
        self.put(self.one)

    @staticmethod
    def change(output, init=None, **facts):
        """Other facts in run.json, `init` in its identity: "" for none recorded."""
        run = json.loads((output / "run.json").read_text())
        if init is not None:
            run["identity"]["init"] = init
        (output / "run.json").write_text(json.dumps({**run, **facts}))

    def recorded(self, output):
        return json.loads((output / "run.json").read_text())["identity"]["init"]

    def copy(self, name, *, finished, init=None):
        """The whole run; an unfinished one as it was after step 3."""
        output = self.work / name
        shutil.copytree(self.whole, output)
        self.change(output, init=init, finished=finished)
        if not finished:
            shutil.rmtree(output / "checkpoints" / "step_6")
        return output

    def require_goes_on(self, output, *overrides):
        finished = json.loads((output / "run.json").read_text())["finished"]
        result = self.programs.train(output, STEPS, *(overrides or [f"lora.init={self.init}"]))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already" if finished else "resuming after step 3", result.stderr)
        self.assertEqual((output / ADAPTER).read_bytes(), (self.whole / ADAPTER).read_bytes())

    def test_another_adapter_under_the_same_path_is_another_run(self):
        self.put(self.other)
        for finished in (True, False):
            output = self.copy(f"replaced-{finished}", finished=finished)
            before = harness.tree(output)
            result = self.programs.train(output, STEPS, f"lora.init={self.init}")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"'{output}' holds a run of another start adapter than lora.init now leads to", result.stderr)
            self.assertIn("checkpoint.overwrite=true", result.stderr)
            self.assertEqual(harness.tree(output), before)
        anew = self.trained("anew", STEPS, f"lora.init={self.other}")
        result = self.programs.train(output, STEPS, f"lora.init={self.init}", "checkpoint.overwrite=true")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((output / ADAPTER).read_bytes(), (anew / ADAPTER).read_bytes())
        self.assertEqual(self.recorded(output), self.recorded(anew))

    def test_the_same_adapter_at_another_path_is_the_same_run(self):
        for finished in (True, False):
            self.require_goes_on(self.copy(f"moved-{finished}", finished=finished), f"lora.init={self.one}")

    def test_a_start_adapter_that_is_gone_is_needed_no_more_and_stays_recorded(self):
        shutil.rmtree(self.init)
        for finished in (True, False):
            output = self.copy(f"gone-{finished}", finished=finished)
            self.require_goes_on(output)
            self.assertEqual(self.recorded(output), self.recorded(self.whole))
            self.put(self.other)
            self.assertEqual(self.programs.train(output, STEPS, f"lora.init={self.init}").returncode, 2)
            shutil.rmtree(self.init)
        # Another path that leads nowhere can't be known as the same.
        output = self.copy("nowhere", finished=False)
        result = self.programs.train(output, STEPS, f"lora.init={self.work / 'nowhere-there'}")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"other settings (lora.init: {self.init} there", result.stderr)

    def test_without_a_checkpoint_the_run_begins_from_the_adapter_and_needs_it(self):
        output = self.copy("begun", finished=False)
        shutil.rmtree(output / "checkpoints")
        shutil.rmtree(self.init)
        result = self.programs.train(output, STEPS, f"lora.init={self.init}")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"'{self.init}' has no adapter_config.json", result.stderr)

    def test_a_run_of_a_version_that_recorded_none_goes_on_by_the_adapters_path(self):
        self.put(self.other)
        for finished in (True, False):
            output = self.copy(f"unrecorded-{finished}", finished=finished, init="")
            self.require_goes_on(output)
            self.assertEqual(self.recorded(output), "")  # what it began with isn't known
            result = self.programs.train(output, STEPS, f"lora.init={self.one}")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("other settings (lora.init:", result.stderr)

    def test_a_start_that_is_no_folder_is_a_setting(self):
        self.assertEqual(self.recorded(self.one), "")
        result = self.programs.train(self.one, "training.max_steps=3", "lora.init=olora")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("other settings (lora.init: kaiming there, olora now)", result.stderr)

    def test_several_processes_record_the_same_adapter_and_refuse_another(self):
        output = self.work / "two"

        def run():
            return subprocess.run(
                [str(self.programs.folder / "lorikeet"), "run", "--nproc", "2", "lora_finetune_distributed", "--config",
                 str(self.work / "config.yaml"), f"checkpoint.output_dir={output}", STEPS, f"lora.init={self.init}"],
                env={**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120, check=False)

        result = run()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.recorded(output), self.recorded(self.whole))
        self.assertIn("finished already", run().stderr)
        self.put(self.other)
        result = run()
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("another start adapter than lora.init now leads to", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
