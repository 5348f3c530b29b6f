"""How a CPU's 16-bit products are chosen: by setting, by feature, by measurement and from its cache, for all ranks of a run, for
its resumption, and for what is done with its adapter."""

import json
import pathlib
import sys
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "benchmarks" / "memory"))
from run import make_model  # noqa: E402

# Just large enough to be measured: 4.8 million parameters in frozen matrices.
SIZES = dict(hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=2048)
OTHER = {"native": "widened", "widened": "native"}


class Products(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        # Measurements of the user's own runs must not decide what is tested here.
        harness.ENVIRONMENT = {**harness.ENVIRONMENT, "XDG_CACHE_HOME": str(cls.work / "home")}
        make_model(cls.work / "model", SIZES)
        rows = [{"input_ids": [(7 * i + j) % 2000 for j in range(64)]} for i in range(8)]
        for row in rows:
            row["labels"] = row["input_ids"]
        (cls.work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (cls.work / "measured.yaml").write_text(
            f"model: {{ path: {cls.work / 'model'} }}\n"
            f"data: {{ train: {{ path: {cls.work / 'rows.jsonl'}, format: tokens }}, max_seq_len: 64,"
            f" cache_dir: {cls.work / 'tokens'} }}\n"
            "batch: { global: 4, micro_tokens: 128 }\ntraining: { max_steps: 2 }\ndevice: cpu\n"
            "lora: { rank: 4 }\n"
            "lr_scheduler: { name: constant, warmup_steps: 0, warmup_ratio: null }\n"
        )

    @classmethod
    def tearDownClass(cls):
        cls.programs.temporary.cleanup()

    def setUp(self):
        for file in self.cached():
            file.unlink()

    def cached(self):
        return sorted((self.work / "home" / "lorikeet" / "products").glob("*.json"))

    def train(self, name, *overrides, ranks=1):
        program = (["lora_finetune_single_device"] if ranks == 1 else
                   ["lorikeet", "run", "--nproc", str(ranks), "lora_finetune_distributed"])
        result = harness.run([str(self.programs.folder / program[0]), *program[1:], "--config",
                              str(self.work / "measured.yaml"), f"checkpoint.output_dir={self.work / name}",
                              *overrides], timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.products(name)

    def products(self, name):
        return json.loads((self.work / name / "run.json").read_text()).get("products")

    def losses(self, name):
        return [line["loss"] for line in harness.metrics(self.work / name)]

    def pretend(self, choice):
        """Has all measurements that are kept say that this way is a hundred times as fast."""
        for file in self.cached():
            kept = json.loads(file.read_text())
            kept["native_over_widened"] = 100.0 if choice == "native" else 0.01
            file.write_text(json.dumps(kept))

    def test_a_measurement_is_made_once_kept_and_obeyed(self):
        first = self.train("measured")
        self.assertEqual(first["reason"], "measured")
        self.assertGreater(min(first["native_gflops_per_second"], first["widened_gflops_per_second"]), 0)
        [file] = self.cached()
        again = self.train("again")
        self.assertEqual(again, {**first, "reason": "cache"})
        self.assertEqual(self.losses("again"), self.losses("measured"))
        for choice in OTHER:
            self.pretend(choice)
            self.assertEqual((self.train(choice)["choice"], self.products(choice)["reason"]), (choice, "cache"))
            self.train(f"set-{choice}", f"precision.matmul={choice}")
            self.assertEqual(self.products(f"set-{choice}"), {"choice": choice, "reason": "setting"})
            self.assertEqual(self.losses(choice), self.losses(f"set-{choice}"))
        self.assertNotEqual(self.losses("native"), self.losses("widened"))
        for a, b in zip(self.losses("native"), self.losses("widened")):
            self.assertLess(abs(a - b) / b, 2e-3)
        file.write_text(file.read_text()[:100])
        self.assertEqual(self.train("damaged")["reason"], "measured")
        self.assertEqual(self.train("mended")["reason"], "cache")

    def test_a_run_goes_on_with_the_products_that_it_began_with(self):
        for choice, other in OTHER.items():
            name = f"resumed-{choice}"
            if not self.cached():
                self.train("any")
            self.pretend(choice)
            self.train(name)
            self.train(f"whole-{choice}", "training.max_steps=4")
            self.pretend(other)
            resumed = self.train(name, "training.max_steps=4")
            self.assertEqual((resumed["choice"], resumed["reason"]), (choice, "resumed"))
            self.assertEqual(self.losses(name), self.losses(f"whole-{choice}"))

    def test_a_run_of_an_older_version_goes_on_as_it_began_by_feature(self):
        by_feature = self.train("fixed", "training.deterministic=true")
        self.assertEqual(by_feature["reason"], "feature")
        self.assertNotIn("native_gflops_per_second", by_feature)
        self.assertEqual(self.cached(), [])  # nothing was measured
        self.train("older")
        self.pretend(OTHER[by_feature["choice"]])
        record = self.work / "older" / "run.json"
        run = json.loads(record.read_text())
        del run["products"]
        record.write_text(json.dumps(run))
        self.assertEqual(self.train("older", "training.max_steps=4"),
                         {"choice": by_feature["choice"], "reason": "resumed"})

    def test_all_ranks_take_the_first_ones_choice(self):
        self.train("ranks", ranks=2)
        self.assertEqual(len(self.cached()), 1)
        for choice in OTHER:
            self.pretend(choice)
            self.assertEqual(self.train(f"ranks-{choice}", ranks=2)["choice"], choice)
            self.train(f"ranks-set-{choice}", f"precision.matmul={choice}", ranks=2)
            self.assertEqual(self.losses(f"ranks-{choice}"), self.losses(f"ranks-set-{choice}"))
        self.assertNotEqual(self.losses("ranks-native"), self.losses("ranks-widened"))

    def test_evaluation_and_plan_find_what_the_run_has_measured(self):
        self.train("evaluated")
        ask = ["eval", self.work / "model", "data.train.format=tokens", "device=cpu", "batch.micro_tokens=128",
               "data.max_seq_len=64", "--adapter", self.work / "evaluated", "--data", self.work / "rows.jsonl"]
        found = {}
        for choice in OTHER:
            self.pretend(choice)
            chosen, set_so = (self.programs.verb(*ask, *more) for more in ([], [f"precision.matmul={choice}"]))
            self.assertEqual((chosen.returncode, chosen.stdout), (0, set_so.stdout), chosen.stderr)
            plan = self.programs.verb("plan", self.work / "measured.yaml", "--json")
            self.assertEqual(plan.returncode, 0, plan.stderr)
            parts = json.loads(plan.stdout)["options"][0]["memory_bytes_by_part"]
            found[choice] = (chosen.stdout, parts["product_caches"])
        self.assertEqual(len(self.cached()), 1)
        self.assertNotEqual(found["native"][0], found["widened"][0])
        # libtorch keeps what its native products leave; kernels of our own, where the CPU has bf16 and no AMX, nothing.
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        own = "avx512_bf16" in flags and "amx_bf16" not in flags
        self.assertEqual(found["native"][1] > 0, not own)
        self.assertEqual(found["widened"][1], 0)

    def test_small_models_fp32_and_settings_measure_nothing(self):
        self.assertEqual(self.programs.train(self.work / "small", "training.max_steps=3").returncode, 0)
        self.assertEqual(self.products("small")["reason"], "feature")
        self.train("fp32", "precision.preset=fp32")
        self.assertIsNone(self.products("fp32"))
        self.train("set", "precision.matmul=widened")
        self.assertEqual(self.cached(), [])
        refused = self.programs.train(self.work / "refused", "precision.preset=fp32", "precision.matmul=native")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("precision.matmul=native is a way to multiply 16-bit matrices", refused.stderr)

    def test_a_cache_that_cannot_be_written_is_a_warning(self):
        blocked = self.work / "blocked"
        blocked.write_text("no folder")
        usual = harness.ENVIRONMENT
        harness.ENVIRONMENT = {**usual, "XDG_CACHE_HOME": str(blocked)}
        try:
            result = harness.run([str(self.programs.folder / "lora_finetune_single_device"), "--config",
                                  str(self.work / "measured.yaml"), f"checkpoint.output_dir={self.work / 'unkept'}"],
                                 timeout=120)
        finally:
            harness.ENVIRONMENT = usual
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the measured rates of matrix products couldn't be kept", result.stderr)
        self.assertEqual(self.products("unkept")["reason"], "measured")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
