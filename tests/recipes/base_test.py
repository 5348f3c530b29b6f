"""A run goes on only over the base that it began with: every weight and what config.json decides."""

import json
import shutil
import struct
import sys
import unittest

import harness

TENSOR = "model.layers.1.mlp.up_proj.weight"


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.base = cls.programs.work / "base"
        shutil.copytree(harness.EXAMPLE / "base", cls.base)
        cls.whole = cls.programs.work / "whole"
        result = cls.train(cls.whole)
        assert result.returncode == 0, result.stderr

    @classmethod
    def train(cls, output):
        return cls.programs.train(
            output, f"model.path={cls.base}", "training.max_steps=4", "checkpoint.save_every_steps=2"
        )

    def setUp(self):
        """The run as if it had been killed after two of its four steps, over an unchanged base."""
        shutil.rmtree(self.base)
        shutil.copytree(harness.EXAMPLE / "base", self.base)
        self.output = self.programs.work / self.id().rsplit(".", 1)[1]
        shutil.copytree(self.whole, self.output)
        shutil.rmtree(self.output / "checkpoints" / "step_4")
        self.change_record(lambda run: run.update(finished=False))

    def record(self):
        return json.loads((self.output / "run.json").read_text())

    def change_record(self, change):
        run = self.record()
        change(run)
        (self.output / "run.json").write_text(json.dumps(run))

    def change_config(self, change):
        path = self.base / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))

    def flip_bit(self):
        """Far from the middle, where older fingerprints took their sample, and from the ends."""
        path = self.base / "model.safetensors"
        content = bytearray(path.read_bytes())
        header = struct.unpack("<Q", content[:8])[0]
        begin, end = json.loads(content[8 : 8 + header])[TENSOR]["data_offsets"]
        content[8 + header + begin + (end - begin) // 3] ^= 1
        path.write_bytes(content)

    def assert_goes_on(self):
        result = self.train(self.output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("resuming after step 2", result.stderr)
        name = "adapter_model.safetensors"
        self.assertEqual((self.output / name).read_bytes(), (self.whole / name).read_bytes())

    def assert_refused(self, *said):
        before = harness.tree(self.output)
        result = self.train(self.output)
        self.assertEqual(result.returncode, 2, result.stderr)
        for text in said:
            self.assertIn(text, result.stderr)
        self.assertEqual(harness.tree(self.output), before)

    def test_the_same_files_copied_anew_are_the_same_base(self):
        self.assert_goes_on()

    def test_one_flipped_bit_of_a_weight_is_refused_by_the_tensors_name_and_file(self):
        self.flip_bit()
        self.assert_refused("the base checkpoint's weights differ", "1 of 38 tensors", f"{TENSOR} (model.safetensors)")

    def test_another_eps_is_refused_by_its_name(self):
        self.change_config(lambda c: c.update(rms_norm_eps=1e-6))
        self.assert_refused("another config.json", "final_norm.eps: 1e-05 there, 1e-06 now")

    def test_another_rotary_base_is_refused_by_its_name(self):
        self.change_config(lambda c: c["rope_parameters"].update(rope_theta=500000.0))
        self.assert_refused("rotary.theta: 10000 there, 5e+05 now")

    def test_config_json_of_an_older_generation_is_the_same_base(self):
        def older(config):
            config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
            config["torch_dtype"] = config.pop("dtype")
            config.update(transformers_version="4.46.0", use_cache=False, rope_scaling=None)

        self.change_config(older)
        self.assert_goes_on()

    def as_of_an_older_program(self, run):
        """run.json as versions of this program wrote it that had one fingerprint for each, without a version."""
        run["finished"] = False
        for key in ("data", "model", "policy"):
            run["identity"][key] = run["identity"][key].split()[0].removeprefix("v1:")
        del run["identity"]["architecture"], run["identity"]["tensors"]

    def test_a_run_of_an_older_program_goes_on_and_gets_the_newer_fingerprint(self):
        newer = self.record()["identity"]
        del newer["settings"]  # they name the output folder
        self.change_record(self.as_of_an_older_program)
        self.assertRegex(self.record()["identity"]["model"], "^[0-9a-f]{64}$")
        self.assert_goes_on()
        identity = self.record()["identity"]
        self.assertEqual({key: identity[key] for key in newer}, newer)
        self.assertRegex(newer["model"], "^v1:[0-9a-f]{64} v2:[0-9a-f]{64}$")

    def test_what_an_older_programs_fingerprint_can_tell_is_still_refused(self):
        def other(run):
            self.as_of_an_older_program(run)
            run["identity"]["model"] = "0" * 64

        self.change_record(other)
        self.assert_refused("another base checkpoint")

    def test_a_fingerprint_that_only_a_newer_program_knows_is_refused_as_such(self):
        self.change_record(lambda run: run["identity"].update(data="v9:" + "0" * 64))
        self.assert_refused("fingerprint 'data'", "finish it with the program that began it")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
