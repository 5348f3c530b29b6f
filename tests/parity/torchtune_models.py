"""Models whose numbers torchtune has too: the config.json beside the ready-made configs agree with its builders.

usage: torchtune_models.py [--write TORCHTUNE]

goldens/torchtune_models.json holds what the builders of torchtune 0.6.1 pass on, {family: {size: {key: number}}}, read from
their source, which isn't run. --write makes it from an unpacked wheel: TORCHTUNE is the folder `torchtune` in it. Where
torchtune is installed, or LORIKEET_TORCHTUNE names such a folder, the test reads the source again.
"""

import ast
import importlib.util
import json
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parents[1] / "recipes" / "configs"
FIGURES = HERE / "goldens" / "torchtune_models.json"
KEYS = {"vocab_size": "vocab_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads", "embed_dim": "hidden_size", "intermediate_dim": "intermediate_size",
        "head_dim": "head_dim", "norm_eps": "rms_norm_eps", "rope_base": "rope_theta", "max_seq_len": "max_position_embeddings",
        "tie_word_embeddings": "tie_word_embeddings"}
# The Mistral 7B of torchtune is the first, whose vocabulary was smaller.
OTHERS = {("mistral", "7B", "vocab_size"): 32000}


def size_of(builder):
    """"1_5b_instruct" -> "1.5B": the size in the name of our file. Base models have none of their own here."""
    name = builder.removesuffix("_instruct")
    return name.replace("_", ".").upper() if name[0].isdigit() else name


def builders(folder):
    """{family: {size: {key: number}}} of the builders whose models lie in recipes/configs."""
    figures = {}
    for path in sorted(folder.glob("models/*/_model_builders.py")):
        family = path.parent.name
        for function in ast.parse(path.read_text()).body:
            if not isinstance(function, ast.FunctionDef) or not function.name.startswith(f"{family}_"):
                continue
            size = size_of(function.name.removeprefix(f"{family}_"))
            if not (CONFIGS / family / f"{size}.config.json").is_file():
                continue
            [call] = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
            figures.setdefault(family, {})[size] = {
                word.arg: word.value.value for word in call.keywords if word.arg in KEYS and isinstance(word.value, ast.Constant)}
    return figures


def installed():
    """The folder of torchtune's source, or None."""
    if given := os.environ.get("LORIKEET_TORCHTUNE"):
        return pathlib.Path(given)
    found = importlib.util.find_spec("torchtune")
    return pathlib.Path(found.origin).parent if found and found.origin else None


class TorchtuneModels(unittest.TestCase):
    def setUp(self):
        self.figures = json.loads(FIGURES.read_text())

    def test_models_have_the_numbers_of_torchtunes_builders(self):
        self.assertEqual(sum(map(len, self.figures.values())), 28)
        for family, sizes in self.figures.items():
            for size, figures in sizes.items():
                facts = json.loads((CONFIGS / family / f"{size}.config.json").read_text())
                self.assertGreaterEqual(len(figures), 7)
                for key, theirs in figures.items():
                    with self.subTest(f"{family}/{size}", key=key):
                        self.assertEqual(theirs, OTHERS.get((family, size, key), facts[KEYS[key]]))
        for family, size, key in OTHERS:  # still another number than ours
            facts = json.loads((CONFIGS / family / f"{size}.config.json").read_text())
            self.assertNotEqual(self.figures[family][size][key], facts[KEYS[key]])

    def test_the_figures_are_those_of_the_source(self):
        folder = installed()
        if folder is None:
            self.skipTest("torchtune isn't installed, and LORIKEET_TORCHTUNE isn't set")
        self.assertEqual(builders(folder), self.figures)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--write":
        text = json.dumps(builders(pathlib.Path(arguments[1])), indent=1)
        # A model a line.
        FIGURES.write_text(re.sub(r"\n   +", " ", text).replace("\n  }", " }") + "\n")
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    unittest.main(argv=[sys.argv[0]], verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
