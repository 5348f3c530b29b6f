"""`lorikeet adapters` shows, compares, averages, scales, shrinks and flattens adapters, and refuses what it can't."""

import json
import shutil
import struct
import sys
import unittest

import harness
from harness import matrix, write_adapter

BASE = harness.EXAMPLE / "base"
HELDOUT = harness.EXAMPLE / "heldout.jsonl"


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.work = cls.programs.work
        # Two directions of singular values 3 * 2 and 4 * 2: scale 2, |dW| 10.
        cls.made = write_adapter(cls.work / "made", {
            "layers.0.q": (matrix(2, 3, lambda i, j: i == j), matrix(4, 2, lambda i, j: (3 + i) * (i == j))),
            "layers.1.q": (matrix(2, 3, lambda i, j: i == j), matrix(4, 2, lambda i, j: 0))})
        cls.other = write_adapter(cls.work / "other", {
            "layers.0.q": (matrix(1, 3, lambda i, j: 1), matrix(4, 1, lambda i, j: 1))}, alpha=1.0)
        cls.finished = cls.work / "run"
        result = cls.programs.train(cls.finished, "data.chat_template=plain")
        assert result.returncode == 0, result.stderr

    def adapters(self, *arguments):
        result = self.programs.verb("adapters", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def json(self, *arguments):
        return json.loads(self.adapters(*arguments, "--json").stdout)

    def refused(self, *arguments, says, code=2):
        output = self.work / "refused"
        result = self.programs.verb("adapters", *arguments, "--output", output)
        self.assertEqual(result.returncode, code, result.stderr)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, result.stderr)
        self.assertFalse(output.exists())

    def eval(self, adapter):
        result = self.programs.verb("eval", BASE, "--data", HELDOUT, "--adapter", adapter, "precision.preset=fp32")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["loss"], result.stderr

    def test_show_tells_what_changes_most(self):
        shown = self.json("show", self.made)
        first, second = shown["modules"]
        self.assertEqual((first["name"], first["rank"], first["alpha"], first["scale"]), ("layers.0.q", 2, 4, 2))
        self.assertAlmostEqual(first["frobenius_norm"], 10)
        self.assertAlmostEqual(first["spectral_norm"], 8)
        self.assertEqual((first["out_features"], first["in_features"]), (4, 3))
        self.assertEqual(second["frobenius_norm"], 0)
        self.assertEqual([layer["share"] for layer in shown["layers"]], [1, 0])
        self.assertEqual([(kind["name"], kind["modules"]) for kind in shown["kinds"]], [("q", 2)])
        lines = self.adapters("show", self.made).stdout.splitlines()
        row = next(line for line in lines if line.startswith("layers.0.q"))
        self.assertEqual(row.split(), ["layers.0.q", "4x3", "2", "4", "2", "1.414", "5", "10", "8"])
        self.assertIn("total |dW| 10", lines)

    def test_diff_says_equal_or_what_differs(self):
        self.assertEqual(self.adapters("diff", self.made, self.made).stdout, "equal: every value and every setting\n")
        found = self.json("diff", self.made, self.other)
        self.assertFalse(found["equal"])
        self.assertEqual((found["only_a"], found["only_b"]), (["layers.1.q"], []))
        (module,) = found["modules"]
        # dA is diag(6, 8), dB all ones [4, 3]: <dA, dB> = 14.
        self.assertAlmostEqual(module["distance"], (100 + 12 - 2 * 14) ** 0.5)
        self.assertAlmostEqual(module["cosine"], 14 / (10 * 12 ** 0.5))
        self.assertIn("r", [setting["key"] for setting in found["settings"]])
        text = self.adapters("diff", self.made, self.other).stdout
        self.assertIn("only in the first: layers.1.q", text)

    def test_scaled_by_2_and_by_a_half_an_adapter_is_the_same_to_the_bit(self):
        twice, back, away = (self.work / name for name in ("twice", "back", "away"))
        self.adapters("scale", self.made, "2", "--output", twice)
        self.assertAlmostEqual(self.json("diff", self.made, twice)["total"]["relative_distance"], 1)
        self.adapters("scale", twice, "0.5", "--output", back)
        self.assertEqual(self.adapters("diff", self.made, back).stdout, "equal: every value and every setting\n")
        self.adapters("scale", self.made, "-1", "--output", away)
        self.assertAlmostEqual(self.json("diff", self.made, away)["total"]["cosine"], -1)

    def test_an_average_of_different_adapters_counts_absent_modules_as_zero_and_says_so(self):
        output = self.work / "different"
        output.mkdir()  # an empty one may be there
        result = self.adapters("average", self.made, self.other, "--weights=2,-1", "--output", output, "--json")
        report = json.loads(result.stdout)
        self.assertIn("lacks 1 module of the others, counted as zero there: layers.1.q", result.stderr)
        self.assertEqual(report["absent_modules"], [{"name": "layers.1.q", "absent_in": [str(self.other)]}])
        module = self.json("show", output)["modules"][0]
        self.assertEqual((module["name"], module["rank"]), ("layers.0.q", 3))
        self.assertAlmostEqual(module["frobenius_norm"], (4 * 100 + 12 - 2 * 2 * 14) ** 0.5, places=5)

    def test_shrink_reports_what_is_lost(self):
        report = self.json("shrink", self.made, "--rank", "1", "--output", self.work / "rank1")
        self.assertAlmostEqual(report["lost_share"], 0.6)  # 6 of 10
        self.assertEqual(self.json("shrink", self.made, "--keep", "0.6", "--output", self.work / "kept")["losses"][0]["rank_after"], 1)
        self.assertEqual(self.json("shrink", self.made, "--keep", "0.7", "--output", self.work / "more")["losses"][0]["rank_after"], 2)
        text = self.adapters("shrink", self.made, "--rank", "1", "--output", self.work / "text").stdout
        self.assertRegex(text, r"layers\.0\.q +2 +1 +10 +60%")

    def test_a_flattened_adapter_is_right_for_programs_that_read_r_and_lora_alpha_alone(self):
        factors = {"layers.0.q": (matrix(2, 3, lambda i, j: i + j), matrix(4, 2, lambda i, j: i - j)),
                   "layers.0.up": (matrix(1, 3, lambda i, j: 1 + j), matrix(5, 1, lambda i, j: 2 + i))}
        mixed, flat = self.work / "mixed", self.work / "flat"
        write_adapter(mixed, factors, alpha=3.0, use_rslora=True, rank_pattern={"up": 1}, alpha_pattern={"up": 5})
        self.assertIn("wrote 2 modules of rank 2 to ", self.adapters("flatten", mixed, "--output", flat).stdout)
        self.assertLess(self.json("diff", mixed, flat)["total"]["relative_distance"], 1e-6)
        config = json.loads((flat / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["rank_pattern"], config["alpha_pattern"], config["use_rslora"]), (2, {}, {}, False))
        tensors = harness.read_tensors(flat / "adapter_model.safetensors")

        def product(a, b):
            return [sum(x * y for x, y in zip(row, column)) for row in b for column in zip(*a)]

        def rows(name):
            _, (count, width), data = tensors[f"base_model.model.{name}.weight"]
            values = struct.unpack(f"<{count * width}f", data)
            return [values[i * width:(i + 1) * width] for i in range(count)]

        for name, scale in (("layers.0.q", 3 / 2 ** 0.5), ("layers.0.up", 5.0)):
            found = [config["lora_alpha"] / config["r"] * x for x in product(rows(f"{name}.lora_A"), rows(f"{name}.lora_B"))]
            for x, y in zip(found, product(*factors[name]), strict=True):
                self.assertAlmostEqual(x, scale * y, places=5)
        wide = self.json("flatten", mixed, "--rank", "4", "--output", self.work / "wide and flat")
        self.assertEqual(wide["rank"], 4)
        self.refused("flatten", mixed, "--rank", "1", says="a rank of at least 2, which a module of the adapter has, got 1")

    def test_the_average_of_a_runs_adapter_with_itself_loads_with_its_chat_template(self):
        loss, _ = self.eval(self.finished)
        for index, extra in enumerate(([], ["--rank", "16"])):
            output = self.work / f"average{index}"
            # The second one's tokenizer lies in the run's folder, above it.
            step = max(self.finished.glob("checkpoints/step_*"), key=lambda path: int(path.name.split("_")[1]))
            self.adapters("average", step if index else self.finished, self.finished, *extra, "--output", output)
            same, log = self.eval(output)
            self.assertAlmostEqual(same, loss, delta=1e-4)
            self.assertIn("chat template: plain, which the adapter was trained with", log)
            self.assertTrue((output / "tokenizer.json").exists())

    def test_what_cannot_be_done_is_refused_by_name(self):
        self.refused("scale", self.made, "0", says="a factor that is finite and not 0, got 0")
        self.refused("scale", self.made, "nan", says="a factor that is finite and not 0")
        self.refused("scale", self.made, "1e9", says="a factor that leaves every alpha above 0 and at most 1e+06, got 1e+09")
        self.refused("average", self.made, self.other, "--weights", "1,0", says="a weight that is finite and not 0")
        self.refused("average", self.made, self.other, "--weights", "1", says="a weight for each adapter, got 1 for 2")
        self.refused("average", self.made, says="adapters")
        self.refused("shrink", self.made, says="--rank or --keep")
        self.refused("shrink", self.made, "--rank", "0", says="--rank")
        self.refused("shrink", self.made, "--keep", "1.5", says="above 0 and at most 1, got 1.5")
        self.refused("shrink", self.made, "--keep", "0.5", "--rank", "1", says="excludes")
        self.refused("shrink", self.work / "nowhere", "--rank", "1", says="has no adapter_config.json")
        wide = write_adapter(self.work / "wide", {"layers.0.q": (matrix(1, 5, lambda i, j: 1), matrix(4, 1, lambda i, j: 1))})
        self.refused("average", self.made, wide, says="'layers.0.q' with a weight of shape [4, 3] in one and [4, 5] in")
        ones = matrix(1, 2, lambda i, j: 1)
        embedding = write_adapter(self.work / "embedding", {"q": (ones, matrix(1, 1, lambda i, j: 1))}, others={"embed.lora_embedding_A": ones})
        self.refused("scale", embedding, "2", says="'embed' has no lora_embedding_B")
        saved = write_adapter(self.work / "saved", {"q": (ones, matrix(1, 1, lambda i, j: 1))}, others={"lm_head.weight": ones},
                              modules_to_save=["lm_head"])
        self.refused("scale", saved, "2", says="modules_to_save")

    def test_trained_tables_are_shown_compared_and_kept(self):
        def made(name, value):
            return write_adapter(self.work / name, {"q": (matrix(1, 2, lambda i, j: 1), matrix(1, 1, lambda i, j: 1))},
                                 others={"lm_head.weight": matrix(3, 2, lambda i, j: value)}, modules_to_save=["lm_head"])

        tables, others = made("tables", 2), made("other tables", 4)
        lines = self.adapters("show", tables).stdout.splitlines()
        self.assertEqual([line.split() for line in lines[-3:-1]],
                         [["modules_to_save", "shape", "|W|"], ["lm_head.weight", "3x2", "4.899"]])
        self.assertEqual(self.json("show", tables)["saved"][0]["shape"], [3, 2])
        text = self.adapters("diff", tables, others).stdout
        self.assertIn("whole copies of weights", text)
        self.assertNotIn("every value is equal", text)
        self.assertEqual(self.json("diff", tables, others)["saved"][0]["relative_distance"], 1)
        average = self.work / "average of tables"
        self.assertIn("1 module and 1 copy of modules_to_save", self.adapters("average", tables, others, "--output", average).stdout)
        self.assertAlmostEqual(self.json("diff", average, tables)["saved"][0]["norm_a"], 3 * 6 ** 0.5)

    def test_a_folder_with_files_in_it_is_left_alone(self):
        target = self.work / "full"
        shutil.copytree(self.made, target)
        before = harness.tree(target)
        result = self.programs.verb("adapters", "scale", self.made, "2", "--output", target)
        self.assertEqual(result.returncode, 2)
        self.assertIn("expected a new or empty folder", result.stderr)
        self.assertEqual(harness.tree(target), before)

    def test_dora_adapters_are_shown_compared_and_flattened_but_not_summed(self):
        dora = self.work / "dora"
        trained = self.programs.train(dora, "lora.use_dora=true", "training.max_steps=3")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertGreater(self.json("show", dora)["modules"][0]["magnitude_norm"], 0)
        self.assertEqual(self.json("diff", dora, dora)["modules"][0]["magnitude_distance"], 0)
        for verb in (["scale", dora, "2"], ["shrink", dora, "--rank", "1"], ["average", dora, dora]):
            self.refused(*verb, says="use_dora")
        flat = self.work / "flat dora"
        self.adapters("flatten", dora, "--rank", "24", "--output", flat)
        self.assertAlmostEqual(self.eval(flat)[0], self.eval(dora)[0], delta=1e-5)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
