"""Bad input ends in one clear error with its exit code, with nothing written and nothing lost."""

import gzip
import json
import os
import shutil
import sys
import unittest

import harness

GOOD = b'{"instruction": "a", "output": "b"}\n'
VERBS = "run ls cp validate config preview tokenize eval generate merge".split()


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        cls.base = harness.EXAMPLE / "base"

    def assert_error(self, result, *says, code=2):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(sum(line.startswith("error: ") for line in result.stderr.splitlines()), 1, result.stderr)
        for part in says:
            self.assertIn(part, result.stderr)

    def refused(self, *overrides, says):
        output = self.work / "new" / "refused"
        self.assert_error(self.programs.train(output, *overrides), *says)
        self.assertFalse((self.work / "new").exists(), "something was written")

    def refused_verb(self, *arguments, says=(), **options):
        result = self.programs.verb(*arguments, **options)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertTrue(result.stderr.strip())
        for part in says:
            self.assertIn(part, result.stderr)

    def data(self, name, content):
        path = self.work / name
        path.write_bytes(content)
        return f"data.train.path={path}"

    def model(self, name, **files):
        """A copy of the base with some files replaced: bytes, or what JSON is made of."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        for file, content in files.items():
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / file.replace("__", ".")).write_bytes(content)
        return f"model.path={folder}"

    def base_json(self, name):
        return json.loads((self.base / name).read_text())

    def test_a_row_that_lacks_a_field_is_told_which(self):
        self.refused(self.data("lacking.jsonl", GOOD + b'{"instruction": "a"}\n'), "data.train.format=auto",
                     says=["line 2", "A row of alpaca has 'output', too"])

    def test_rows_without_an_answer_are_refused_for_what_they_lack(self):
        rows = self.data("questions.jsonl", b'{"messages": [{"role": "user", "content": "Hi"}]}\n')
        output = self.work / "new" / "refused"
        result = self.programs.train(output, rows, "data.train.format=chat", "data.chat_template=plain")
        self.assert_error(result, "no token to learn", "a turn of the assistant")
        self.assertNotIn("raise data.max_seq_len", result.stderr)

    def test_the_tables_that_can_be_trained_are_named_once(self):
        result = self.programs.train(self.work / "new" / "refused", "lora.modules_to_save=[embed]")
        self.assert_error(result, "lora.modules_to_save")
        self.assertEqual(result.stderr.count("lm_head"), 1, result.stderr)

    def test_bad_settings_are_all_reported_at_once(self):
        self.refused("lora.rnak=8", "training.epochs=1.5", says=["did you mean 'lora.rank'", "training.epochs"])
        self.refused("device=cuda:99", says=["cuda:99"])
        self.refused("lora.target_modules=[q_porj]", says=["q_porj", "did you mean 'q_proj'"])
        self.refused("precision.preset=tf32", says=["a CPU has no TF32", "precision.preset=fp32"])
        self.refused("precision.matmul=tf32", says=["precision.compute is bf16"])

    def test_bad_data_is_named_by_file_and_line(self):
        self.refused(self.data("empty.jsonl", b""), says=["empty.jsonl"])
        self.refused(self.data("broken.jsonl", GOOD + b'{"instruction": \n'), says=["line 2", "broken.jsonl"])
        self.refused(self.data("keys.jsonl", GOOD + b'{"instruction": "a"}\n'), says=["line 2", "output"])
        self.refused(self.data("latin1.jsonl", GOOD + b'{"instruction": "\xe9", "output": "b"}\n'), says=["line 2", "UTF-8"])
        self.refused(self.data("deep.jsonl", GOOD + b"[" * 1_000_000), says=["line 2", "deeper"])
        self.refused(self.data("cut.jsonl.gz", gzip.compress(GOOD * 100)[:-9]), says=["cut.jsonl.gz"])
        self.refused(self.data("bomb.jsonl.gz", gzip.compress(b" " * (1 << 27))), says=["bomb.jsonl.gz", "expands"])
        self.refused("data.train.path=/nonexistent/x.jsonl", says=["/nonexistent/x.jsonl"])
        self.refused("data.overlong=drop", "data.max_seq_len=2", says=["train.jsonl", "longer"])
        mute = b'{"input_ids": [1, 2], "labels": [-100, -100]}\n'
        self.refused(self.data("mute.jsonl", mute), "data.train.format=tokens", says=["mute.jsonl", "no token to learn"])

    def test_bad_weights_are_explained(self):
        weights = (self.base / "model.safetensors").read_bytes()
        for content, says in ((weights[:-100], "cut"), (weights + b"12345678", "damaged"), (b"PK\3\4" + weights, "pickle"),
                              ((8 << 60).to_bytes(8, "little") + b"{}", "at most 100000000")):
            self.refused(self.model("broken", model__safetensors=content), says=["model.safetensors", says])
        self.refused("model.path=meta-llama/Llama-3.2-1B", says=["hub:meta-llama/Llama-3.2-1B"])

    def test_a_bad_config_json_is_explained_and_takes_no_memory(self):
        config = self.base_json("config.json")
        for change, says in (({"model_type": "mamba"}, ["mamba", "llama"]), ({"num_hidden_layers": 9}, ["missing"]),
                             ({"intermediate_size": 7}, ["mismatched"]), ({"num_attention_heads": 3}, ["no multiple"]),
                             ({"vocab_size": 100}, ["don't belong together"]),
                             ({"vocab_size": 1 << 24, "hidden_size": 1 << 22}, ["mismatched"]),
                             ({"num_hidden_layers": 200_000_000}, ["num_hidden_layers"])):
            self.refused(self.model("broken", config__json={**config, **change}), says=says)
        self.refused(self.model("broken", config__json=b"[" * 1_000_000), says=["config.json", "deeper"])

    def test_an_index_leads_nowhere_else(self):
        names = ["model.embed_tokens.weight"]
        for shard, says in (("model-2.safetensors", "model-2.safetensors"), ("../base/model.safetensors", "bare name"),
                            ("/etc/passwd", "bare name"), ("", "bare name"), (".x.safetensors", "bare name")):
            override = self.model("sharded", **{"model__safetensors__index__json": {"weight_map": dict.fromkeys(names, shard)}})
            (self.work / "sharded" / "model.safetensors").unlink()
            self.refused(override, says=["model.safetensors.index.json", says])

    def test_bad_tokenizers_are_explained(self):
        tokenizer = self.base_json("tokenizer.json")
        split = {"type": "Split", "behavior": "Isolated", "invert": False}
        extra = {"id": 5000, "content": "<x>", "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                 "single_word": False}
        for change, says in (({"pre_tokenizer": {**split, "pattern": {"Regex": "(a|aa)+$|(\\w+\\s?)+x$"}}}, "runs away"),
                             ({"pre_tokenizer": {"type": "Jieba"}}, "Jieba"), ({"model": {"type": "WordPiece"}}, "WordPiece"),
                             ({"added_tokens": [*tokenizer["added_tokens"], extra]}, "only 1280 rows")):
            self.refused(self.model("strange", tokenizer__json={**tokenizer, **change}), says=[says])
        for content in (b"", b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x0a\x00" * 3_000_000):
            override = self.model("strange", tokenizer__model=content)
            (self.work / "strange" / "tokenizer.json").unlink()
            self.refused(override, says=["tokenizer.model"])
            (self.work / "strange" / "tokenizer.model").unlink()
            self.refused(override, says=["expected tokenizer.json or tokenizer.model"])

    def test_a_folder_with_other_files_is_left_alone(self):
        output = self.work / "photos"
        output.mkdir()
        (output / "holiday.jpg").write_text("x")
        self.assert_error(self.programs.train(output, "checkpoint.overwrite=true"), "holiday.jpg")
        self.assertEqual(os.listdir(output), ["holiday.jpg"])
        self.assert_error(self.programs.train("/proc/nowhere"), "/proc/nowhere")

    def test_a_run_survives_the_refusal_of_the_one_to_replace_it_and_is_then_replaced_whole(self):
        output = self.work / "run"
        result = self.programs.train(output, "training.max_steps=4", "data.validation.fraction=0.05")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"validation: [1-9]\d* of these examples are held out, [1-9]\d+ are trained on")
        before = harness.tree(output)
        self.assertIn("best/adapter_model.safetensors", before)
        self.assert_error(self.programs.train(output, "lora.rank=4"), "other settings", "lora.rank: 16 there, 4 now")
        for wrong in ("lora.init=/nonexistent/a", "lora.target_modules=[zzz]", "lr_scheduler.warmup_steps=1000",
                      self.data("none.jsonl", b"")):
            self.assert_error(self.programs.train(output, wrong, "checkpoint.overwrite=true"))
            self.assertEqual(harness.tree(output), before, wrong)

        # Cut short while the old run was being removed.
        (output / "run.json").write_text('{"given_up": true}')
        self.assert_error(self.programs.train(output, "training.max_steps=3"), "given up")
        (output / "mine.txt").write_text("kept")
        result = self.programs.train(output, "training.max_steps=3", "checkpoint.overwrite=true")
        self.assertEqual(result.returncode, 0, result.stderr)
        after = harness.tree(output)
        self.assertEqual({name.split("/")[0] for name in after} - {name.split("/")[0] for name in before}, {"mine.txt"})
        self.assertNotIn("best/adapter_model.safetensors", after)
        self.assertTrue(json.loads(after["run.json"])["finished"])

    def test_checkpoints_are_thinned_out_without_following_links(self):
        output, precious = self.work / "linked", self.work / "precious"
        self.assertEqual(self.programs.train(output, "training.max_steps=6").returncode, 0)
        shutil.copytree(output / "checkpoints" / "step_3", precious)
        before = harness.tree(precious)
        run = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**run, "finished": False}))
        shutil.rmtree(output / "checkpoints" / "step_6")
        (output / "checkpoints" / "step_1").symlink_to(precious)  # the oldest, were it one of ours
        (output / "checkpoints" / "step_3" / "link").symlink_to(precious)
        resumed = self.programs.train(output, "training.max_steps=6", "checkpoint.keep_last=1")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(sorted(os.listdir(output / "checkpoints")), ["step_1", "step_6"])
        self.assertEqual(harness.tree(precious), before)

    def test_a_disk_that_is_full_ends_the_run_without_half_a_checkpoint(self):
        output = self.work / "full"
        self.assert_error(self.programs.train(output, largest_file=400_000), "checkpoints/step_3", code=3)
        self.assertEqual(os.listdir(output / "checkpoints"), [])
        self.assertFalse((output / "adapter_model.safetensors").exists())
        resumed = self.programs.train(output)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_bad_adapters_are_explained(self):
        adapter = self.work / "adapter"
        adapter.mkdir()
        plain = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
        weights = adapter / "adapter_model.safetensors"
        for config, content, says in (({**plain, "lora_bias": True}, b"", "a bias"), (plain, b"\x10", "cut"),
                                      (plain, (2).to_bytes(8, "little") + b"{}", "missing"),
                                      ({**plain, "lora_alpha": 1e300}, b"", "lora_alpha"),
                                      ({**plain, "target_modules": ["zzz"]}, b"", "zzz")):
            (adapter / "adapter_config.json").write_text(json.dumps(config))
            weights.write_bytes(content)
            self.refused_verb("generate", self.base, "--adapter", adapter, "--prompt", "x", says=[says])
        self.refused_verb("generate", adapter, "--prompt", "x", says=["no config.json", "by --adapter", "lora.init"])

    def test_command_lines_that_make_no_sense_exit_2(self):
        self.refused_verb()
        self.refused_verb("frobnicate")
        for verb in VERBS:
            self.refused_verb(verb, "--nope")
            if verb not in ("ls", "config"):
                self.refused_verb(verb)
        self.refused_verb("merge", self.base, says=["error: ", "; `lorikeet merge --help` lists what it takes"])
        refused = harness.run([str(self.programs.folder / "lora_finetune_single_device"), "--confg", "x.yaml"], 60)
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, r"^error: .*; `lora_finetune_single_device --help` lists what it takes\n$")
        ask = ["generate", self.base, "--prompt", "x"]
        for option, value in (("--temperature", "nan"), ("--temperature", "-1"), ("--top-p", "nan"), ("--top-p", "2"),
                              ("--max-new-tokens", "-3"), ("--max-new-tokens", "99999999999999999999"), ("--seed", "-1"),
                              ("--limit", "-1")):
            self.refused_verb(*ask, option, value, says=[option, value])
        self.refused_verb("preview", self.base, "--data", harness.EXAMPLE / "heldout.jsonl", "--rows", "-1", says=["--rows"])
        self.refused_verb("generate", self.base, "--prompt", "word " * 600, says=["at most 512 tokens"])
        self.refused_verb("tokenize", self.base, stdin='"a"\n"b\n', says=["line 2"])
        self.refused_verb("tokenize", self.base, "--decode", stdin="[99999999]\n", says=["99999999"])

    def test_control_characters_never_reach_a_terminal(self):
        row = {"instruction": "a\x1b[31m\x07b", "output": "c\x1b]0;title\x07"}
        (self.work / "control.jsonl").write_text(json.dumps(row) + "\n")
        program = str(self.programs.folder / "lorikeet")
        code, seen = harness.on_terminal([program, "generate", str(self.base), "--data", str(self.work / "control.jsonl"),
                                          "--max-new-tokens", "2"])
        self.assertEqual(code, 0, seen)
        self.assertIn("a\\x1b[31m\\x07b", seen)
        for verb in (["preview", str(self.base), "--data", str(self.work / "control.jsonl")],
                     ["eval", str(self.base), "--data", str(self.work / "no\x1b[31m.jsonl")]):
            code, shown = harness.on_terminal([program, *verb])
            seen += shown
            self.assertIn("\\x1b", shown)
        for sequence in ("\x07", "\x1b[31m\x07b", "\x1b]0", "no\x1b"):
            self.assertNotIn(sequence, seen)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
