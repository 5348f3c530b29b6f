"""The ready-made configs and the models that they are for: what `lorikeet ls` says of them, and plans of models that
nobody has downloaded."""

import json
import re
import subprocess
import sys
import unittest

import harness

# The counts by which these models are known, a tied table once: written down from memory where no page could be
# reached, so that what they hold is that facts and counts, written apart, agree to the last parameter.
PUBLISHED_PARAMETERS = {
    "aya_expanse/8B": 8_028_033_024,
    "aya_expanse/32B": 32_296_476_672,
    "bamba/9B": 9_780_235_392,
    "command_r7b/7B": 8_028_033_024,
    "ernie4_5/0.3B": 360_748_032,
    "exaone4/1.2B": 1_279_391_488,
    "exaone4/32B": 32_003_216_384,
    "falcon/7B": 6_921_720_704,
    "falcon/40B": 41_303_293_952,
    "gemma/2B": 2_506_172_416,
    "gemma/7B": 8_537_680_896,
    "gemma2/2B": 2_614_341_888,
    "gemma2/9B": 9_241_705_984,
    "gemma2/27B": 27_227_128_320,
    "gemma3/270M": 268_098_176,
    "gemma3/1B": 999_885_952,
    # The checkpoints' 4,300,079,472, 12,187,325,040 and 27,432,406,640 without their vision tower (416,866,032) and
    # projector (1,152 and 1,152 times hidden_size).
    "gemma3/4B": 3_880_263_168,
    "gemma3/12B": 11_766_034_176,
    "gemma3/27B": 27_009_346_304,
    "glm4/9B": 9_400_279_040,
    "glm4/32B": 32_566_081_536,
    "gpt_neox/20B": 20_554_567_680,
    "gpt_oss/20B": 20_914_757_184,
    "gpt_oss/120B": 116_829_156_672,
    "granite3_3/2B": 2_533_539_840,
    "granite3_3/8B": 8_170_864_640,
    "granite4_h/350M": 340_332_224,
    "granite4_h/1B": 1_461_538_368,
    "granite4_h/3B": 3_191_396_096,
    "granite4_h/7B": 6_939_037_248,
    "granite4_h/32B": 32_207_337_984,
    "lfm2/350M": 354_483_968,
    "lfm2/700M": 742_489_344,
    "lfm2/1.2B": 1_170_340_608,
    "lfm2/2.6B": 2_569_272_320,
    "llama2/7B": 6_738_415_616,
    "llama2/13B": 13_015_864_320,
    "llama2/70B": 68_976_648_192,
    "llama3/8B": 8_030_261_248,
    "llama3/70B": 70_553_706_496,
    "llama3_1/8B": 8_030_261_248,
    "llama3_1/70B": 70_553_706_496,
    "llama3_1/405B": 405_853_388_800,
    "llama3_2/1B": 1_235_814_400,
    "llama3_2/3B": 3_212_749_824,
    "llama3_3/70B": 70_553_706_496,
    "ministral/8B": 8_019_808_256,
    # The checkpoints' 3,849,090,048, 8,918,026,240 and 13,945,031,680 without their vision tower (403,305,472) and
    # projector (16,778,240, 25,166,848 and 35,652,608).
    "ministral3/3B": 3_429_006_336,
    "ministral3/8B": 8_489_553_920,
    "ministral3/14B": 13_506_073_600,
    "mistral/7B": 7_248_023_552,
    "mistral_nemo/12B": 12_247_782_400,
    "mistral_small/24B": 23_572_403_200,
    "mistral_small3_1/24B": 23_572_403_200,  # the checkpoint's 24,011,361,280, as above
    "mistral_large/123B": 122_610_069_504,
    "mixtral/8x7B": 46_702_792_704,
    "olmo2/1B": 1_484_916_736,
    "olmo2/7B": 7_298_617_344,
    "olmo2/13B": 13_716_198_400,
    "olmo2/32B": 32_234_279_936,
    "olmo3/7B": 7_298_011_136,
    "olmo3/32B": 32_233_522_176,
    "olmo3_1/32B": 32_233_522_176,
    "olmoe/7B": 6_919_161_856,
    "phi3/mini": 3_821_079_552,
    "phi3/medium": 13_960_238_080,
    "phi3_5/mini": 3_821_079_552,
    "phi4/14B": 14_659_507_200,
    "phi4/mini": 3_836_021_760,
    "pythia/14M": 14_067_712,
    "pythia/31M": 30_494_720,
    "pythia/70M": 70_426_624,
    "pythia/160M": 162_322_944,
    "pythia/410M": 405_334_016,
    "pythia/1B": 1_011_781_632,
    "pythia/1.4B": 1_414_647_808,
    "pythia/2.8B": 2_775_208_960,
    "pythia/6.9B": 6_857_302_016,
    "pythia/12B": 11_846_072_320,
    "qwen2/0.5B": 494_032_768,
    "qwen2/1.5B": 1_543_714_304,
    "qwen2/7B": 7_615_616_512,
    "qwen2/72B": 72_706_203_648,
    "qwen2_5/0.5B": 494_032_768,
    "qwen2_5/1.5B": 1_543_714_304,
    "qwen2_5/7B": 7_615_616_512,
    "qwen2_5/3B": 3_085_938_688,
    "qwen2_5/14B": 14_770_033_664,
    "qwen2_5/32B": 32_763_876_352,
    "qwen2_5/72B": 72_706_203_648,
    # The checkpoints' 3,754,622,976, 8,292,166,656, 33,452,718,336 and 73,410,777,344 without their vision tower.
    "qwen2_5_vl/3B": 3_085_938_688,
    "qwen2_5_vl/7B": 7_615_616_512,
    "qwen2_5_vl/32B": 32_763_876_352,
    "qwen2_5_vl/72B": 72_706_203_648,
    "qwen2_moe/14B": 14_315_784_192,
    "qwen2_moe/57B": 57_408_658_944,
    # The checkpoints' 2,208,985,600, 8,291,375,616 and 73,405,560,320 likewise.
    "qwen2_vl/2B": 1_543_714_304,
    "qwen2_vl/7B": 7_615_616_512,
    "qwen2_vl/72B": 72_706_203_648,
    "qwen3/0.6B": 596_049_920,
    "qwen3/1.7B": 1_720_574_976,
    "qwen3/4B": 4_022_468_096,
    "qwen3/8B": 8_190_735_360,
    "qwen3/14B": 14_768_307_200,
    "qwen3/32B": 32_762_123_264,
    # Of 2B and 4B the checkpoints' 2,274,069,824 and 4,659,865,088 without their vision tower (331,416,576 and 333,514,240) and
    # the layers that predict tokens further ahead (60,828,160 and 120,599,552).
    "qwen3_5/0.8B": 752_393_024,
    "qwen3_5/2B": 1_881_825_088,
    "qwen3_5/4B": 4_205_751_296,
    "qwen3_5/9B": 8_953_803_264,
    "qwen3_5/27B": 26_895_998_464,
    "qwen3_5_moe/35B": 34_660_610_688,  # likewise
    "qwen3_moe/30B": 30_532_122_624,
    "qwen3_moe/235B": 235_093_634_560,
    "qwen3_next/80B": 79_674_391_296,  # without the layers that predict tokens further ahead
    # The checkpoints' 2,127,532,032, 4,437,815,808, 8,767,123,696 and 33,357,390,064 likewise.
    "qwen3_vl/2B": 1_720_574_976,
    "qwen3_vl/4B": 4_022_468_096,
    "qwen3_vl/8B": 8_190_735_360,
    "qwen3_vl/32B": 32_762_123_264,
    "qwen3_vl_moe/30B": 30_532_122_624,
    "qwen3_vl_moe/235B": 235_093_634_560,
    "seed_oss/36B": 36_151_104_512,
    "smollm2/135M": 134_515_008,
    "smollm2/360M": 361_821_120,
    "smollm2/1.7B": 1_711_376_384,
    "smollm3/3B": 3_075_098_624,
    "stable_code/3B": 2_795_443_200,
    "stablelm/3B": 2_795_443_200,
    "stablelm2/1.6B": 1_644_515_328,
    "starcoder2/3B": 3_030_371_328,
    "starcoder2/7B": 7_173_923_840,
    "starcoder2/15B": 15_957_889_024,
    "tinyllama/1.1B": 1_100_048_384,
}

# Whose lora is in 4 bits already.
PUBLISHED_IN_FOUR_BITS = {"gpt_oss/20B", "gpt_oss/120B"}


class Listed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.configs = {config["name"]: config for config in cls.listed()["configs"]}

    @classmethod
    def listed(cls, *words):
        result = cls.programs.verb("ls", *words, "--json")
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        return json.loads(result.stdout)

    def names(self, *words):
        return {config["name"] for config in self.listed(*words)["configs"]}

    def test_the_configs_are_what_their_script_writes(self):
        result = subprocess.run([harness.ROOT / "scripts" / "configs", "--check"], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_every_config_is_listed_and_every_model_that_is_published_with_its_numbers(self):
        folder = harness.ROOT / "recipes" / "configs"
        self.assertEqual(set(self.configs), {str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.yaml")})
        for name, config in self.configs.items():
            if name == "quickstart/tiny_lora":
                self.assertIsNone(config["parameters"])
                continue
            model, method = name.rsplit("_", 1)
            least, plain = config["least_memory_bytes"], self.configs[f"{model}_lora"]["least_memory_bytes"]
            # bf16 weights alone take two bytes a parameter, those in 4 bits half a byte and their scales.
            in_four_bits = method == "qlora" or model in PUBLISHED_IN_FOUR_BITS
            self.assertGreater(least, (0.5 if in_four_bits else 2) * config["parameters"], name)
            if model in PUBLISHED_IN_FOUR_BITS:
                self.assertLess(least, config["parameters"], name)
            if method == "qlora":
                self.assertLess(least, plain, name)
            if method == "dora":
                self.assertGreater(least, plain, name)

    def test_every_model_has_its_method_in_4_bits(self):
        models = {name.rsplit("_", 1)[0] for name in self.configs} - {"quickstart/tiny"}
        self.assertEqual({model for model in models if f"{model}_qlora" not in self.configs}, PUBLISHED_IN_FOUR_BITS)
        self.assertEqual(self.names("llama3_2/1B"), {f"llama3_2/1B_{method}" for method in ("lora", "qlora", "dora")})
        self.assertEqual({config["method"] for config in self.configs.values()}, {"lora", "qlora", "dora"})

    def test_parameters_are_as_published(self):
        counted = {name.rsplit("_", 1)[0]: config["parameters"] for name, config in self.configs.items()}
        self.assertEqual({model: counted[model] for model in PUBLISHED_PARAMETERS}, PUBLISHED_PARAMETERS)

    def test_the_least_memory_is_that_of_the_plan(self):
        name, row = "qwen3/8B_lora", 2048
        plan = self.programs.verb("plan", name, "--gpu", "A100", "--devices", "1", "batch.global=1", "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        smallest = [o for o in json.loads(plan.stdout)["options"]
                    if o["activation_checkpointing"] == "full" and o["micro_tokens"] == row]
        self.assertEqual([o["memory_bytes"] for o in smallest], [self.configs[name]["least_memory_bytes"]])

    def test_words_filter_by_names_whatever_their_case(self):
        self.assertEqual(self.names("qwen3/", "8B"), {f"qwen3/8B_{method}" for method in ("lora", "qlora", "dora")})
        mistrals = ("ministral/8B", "ministral3/3B", "ministral3/8B", "ministral3/14B", "mistral/7B", "mistral_nemo/12B",
                    "mistral_small/24B", "mistral_small3_1/24B", "mistral_large/123B", "mixtral/8x7B")
        self.assertEqual(self.names("mistralai", "_lora"), {f"{model}_lora" for model in mistrals})
        self.assertEqual(len(self.names("QWEN3/", "_LORA")), 6)
        refused = self.programs.verb("ls", "qwen4")
        self.assertEqual(refused.returncode, 2)
        self.assertEqual(refused.stdout, "")
        self.assertIn("no ready-made config has 'qwen4' in its name (did you mean 'qwen2'?)", refused.stderr)
        self.assertEqual(self.programs.verb("ls", "qwen3", "pythia").returncode, 2)

    def test_the_table_is_aligned_and_sorted_by_size_within_a_family(self):
        result = self.programs.verb("ls", "pythia", "_lora")
        self.assertEqual(result.returncode, 0, result.stderr)
        header, *rows = [line for line in result.stdout.splitlines() if line.startswith("  ")]
        self.assertEqual(re.split(r"  +", header.strip()), ["family", "size", "method", "parameters", "least memory", "config"])
        column = header.index("config")
        self.assertEqual([row[column:] for row in rows],
                         [f"pythia/{size}_lora" for size in "14M 31M 70M 160M 410M 1B 1.4B 2.8B 6.9B 12B".split()])
        self.assertIn("1.01 B", rows[5])
        self.assertIn("Least memory", result.stdout)


class PlannedBeforeDownload(unittest.TestCase):
    """Nothing of the model or the data is there: the programs run in a folder of their own."""

    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.nowhere = cls.programs.work / "nowhere"
        cls.nowhere.mkdir()

    def plan(self, *arguments):
        command = [str(self.programs.folder / "lorikeet"), "plan", *map(str, arguments)]
        return subprocess.run(command, env=harness.ENVIRONMENT, capture_output=True, text=True, timeout=120, cwd=self.nowhere, check=False)

    def planned(self, *arguments):
        result = self.plan(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, *arguments):
        result = self.plan(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def test_all_of_the_experts_adapters_cross_the_link_though_a_token_passes_few(self):
        shown = self.plan("olmoe/7B_lora", "--gpu", "H100", "--max-devices", "2", "lora.rank=4",
                          "lora.target_modules=[gate_proj, up_proj, down_proj]").stdout
        parameters = 16 * 64 * 3 * 4 * (2048 + 1024)
        self.assertIn(f"{4 * parameters / 2**20:.1f} MiB a step", shown)

    def test_a_ready_made_config_is_planned_for_a_card_and_says_what_it_assumes(self):
        plan = self.planned("qwen3/8B_lora", "--gpu", "RTX 4090", "--max-devices", "2")
        data = plan["data"]
        self.assertEqual((data["examples"], data["longest"], data["tokens"], data["label_tokens"], data["steps"]),
                         (32, 2048, 32 * 2048, 32 * 2047, 1))
        self.assertIn("there is no 'train.jsonl'", data["assumed"])
        self.assertIn("config.json and tokenizer", data["assumed"])
        # bf16, each tensor from a multiple of 512 bytes on.
        self.assertLess(plan["best"]["memory_bytes_by_part"]["weights"] - 2 * 8_190_735_360, 1 << 20)
        self.assertEqual(plan["command"][:5], ["lorikeet", "run", "--nproc", "2", "lora_finetune_distributed"])
        shown = self.plan("qwen3/8B_lora", "--gpu", "RTX 4090", "--max-devices", "2").stdout
        for line in ("by config.json alone", "Data, assumed: 32 rows, 65536 tokens", "rows of data.max_seq_len tokens", "So: train on"):
            self.assertIn(line, shown)

    def test_a_model_in_4_bits_fits_a_card_that_its_16_bits_do_not(self):
        plan = self.planned("qwen3/8B_qlora", "--gpu", "RTX 4080", "--devices", "1")
        self.assertLess(plan["best"]["memory_bytes_by_part"]["weights"], 8 * 2**30)

    def test_settings_change_the_rows_that_are_assumed(self):
        plan = self.planned("llama3_2/1B_lora", "--gpu", "RTX 3090", "--devices", "1", "data.max_seq_len=512", "~batch.global",
                            "batch.global_tokens=4096")
        self.assertEqual((plan["data"]["examples"], plan["data"]["longest"], plan["data"]["tokens_per_step"]), (8, 512, 4096))

    def test_a_config_of_ones_own_is_planned_by_the_name_of_its_models_folder(self):
        own = self.nowhere / "own.yaml"
        own.write_text("model: { path: /anywhere/gemma-2-2b-it/ }\n")
        plan = self.planned(own, "--gpu", "L4", "--devices", "1")
        self.assertEqual(plan["best"]["memory_bytes_by_part"]["weights"], 2 * 2_614_341_888)
        error = self.refused(own, "model.path=models/gemma-2-2b-id", "--gpu", "L4")
        self.assertIn("there is no folder 'models/gemma-2-2b-id'", error)
        self.assertIn("no published model of that name is known (did you mean 'gemma-2-2b-it'?)", error)

    def test_data_that_is_named_on_the_command_line_has_to_be_there(self):
        self.assertIn("there is no file 'rows.jsonl'", self.refused("qwen3/8B_lora", "data.train.path=rows.jsonl", "--gpu", "L4"))
        self.assertIn("expected a step of at most 134217728 tokens", self.refused("qwen3/8B_lora", "batch.global_tokens=2147483647", "--gpu", "L4"))
        rows = self.nowhere / "rows.jsonl"
        rows.write_text('{"prompt": "a", "completion": "b"}\n')
        plan = self.planned("qwen3/8B_lora", f"data.train.path={rows}", "--gpu", "L4", "--devices", "1")
        self.assertIn("can't be counted without the checkpoint's tokenizer", plan["data"]["assumed"])

    def test_a_checkpoint_without_data_is_planned_with_assumed_rows(self):
        own = self.nowhere / "no_data.yaml"
        own.write_text(f"model: {{ path: {harness.EXAMPLE / 'base'} }}\ndata: {{ max_seq_len: 256 }}\n")
        plan = self.planned(own, "--gpu", "L4", "--devices", "1")
        self.assertEqual(plan["data"]["longest"], 256)
        self.assertNotIn("tokenizer", plan["data"]["assumed"])
        real = self.planned(own, "--gpu", "L4", "--devices", "1", f"data.train.path={harness.EXAMPLE / 'train.jsonl'}")
        self.assertIsNone(real["data"]["assumed"])
        self.assertIn("missing.jsonl", self.refused(own, "--gpu", "L4", "data.train.path=missing.jsonl"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
