"""The config.json of every published model beside the ready-made configs: transformers makes a model of as many
parameters from it, and where the defaults of a family's configuration class are one of these models, they agree."""

import json
import subprocess
import sys

import live_test  # first: it skips where torch or transformers is missing
import families
import programs
import torch
import transformers

FOLDER = live_test.pathlib.Path(__file__).resolve().parents[2] / "recipes" / "configs"
WIDTHS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
          "vocab_size")
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
DENSE_LAYERS = ("num_dense_layers", "moe_layer_start_index", "first_k_dense_replace")
# What Gemma 4 multiplies the stream by, and what is added to scores by which experts are chosen.
BUFFERS = ("layer_scalar", "expert_bias", "e_score_correction_bias")
# model_type -> the model that transformers' defaults are, and the keys in which it has a default of its own.
DEFAULTS = {
    "falcon": ("falcon/7B", WIDTHS),
    "gemma": ("gemma/7B", WIDTHS),
    "gemma2": ("gemma2/2B", WIDTHS),
    "gpt_neox": ("gpt_neox/20B", WIDTHS),
    "gpt_oss": ("gpt_oss/120B", WIDTHS),
    "llama": ("llama2/7B", WIDTHS),
    # The first 7B, whose vocabulary was smaller.
    "mistral": ("mistral/7B", [key for key in WIDTHS if key != "vocab_size"]),
    "mixtral": ("mixtral/8x7B", WIDTHS),
    "olmo3": ("olmo3/7B", [key for key in WIDTHS if key != "vocab_size"]),
    "olmoe": ("olmoe/7B", [key for key in WIDTHS if key != "intermediate_size"]),
    "phi3": ("phi3/mini", WIDTHS),
    "qwen2_moe": ("qwen2_moe/14B", (*WIDTHS, *EXPERTS)),
    "qwen3_next": ("qwen3_next/80B", (*WIDTHS[:1], *WIDTHS[2:], *EXPERTS)),
    "seed_oss": ("seed_oss/36B", [key for key in WIDTHS if key != "hidden_size"]),
    "smollm3": ("smollm3/3B", WIDTHS),
    "stablelm": ("stablelm/3B", WIDTHS),
    "starcoder2": ("starcoder2/3B", WIDTHS),
}


def published():
    return {str(path.relative_to(FOLDER)).removesuffix(".config.json"): json.loads(path.read_text())
            for path in sorted(FOLDER.glob("*/*.config.json"))}


class PublishedModels(live_test.LiveTest):
    def test_transformers_makes_a_model_of_as_many_parameters(self):
        listed = subprocess.run([self.programs.lorikeet, "ls", "--json"], capture_output=True, text=True, timeout=120, check=True,
                                env=programs.ENVIRONMENT)
        counted = {config["name"].rsplit("_", 1)[0]: config["parameters"] for config in json.loads(listed.stdout)["configs"]}
        models = published()
        self.assertGreaterEqual(len(models), 142)
        for name, facts in models.items():
            with self.subTest(name):
                # Layers are alike, or come in groups that are: the second group has what each of the others has.
                text = facts.get("text_config", facts)
                # Every layer counts where heads of two sizes follow each other, the last of which are the larger ones, where a list
                # says which layers attend, and where some have no experts.
                whole = {"global_head_dim", "full_attn_idxs", "mamba_n_heads", *DENSE_LAYERS} & text.keys()
                group = text["num_hidden_layers"] if whole else text.get("full_attention_interval", 1)
                groups, rest = divmod(text["num_hidden_layers"], group)
                self.assertEqual(rest, 0)
                one = self.parameters(facts, group)
                each = self.parameters(facts, 2 * group) - one if groups > 1 else 0
                self.assertEqual(one + (groups - 1) * each, counted[name])

    def parameters(self, facts, layers):
        facts = {key: value for key, value in facts.items() if key != "no_rope_layers"}
        text = facts.get("text_config", facts) | {"num_hidden_layers": layers}
        if "layer_types" in text:
            text["layer_types"] = text["layer_types"][:layers]
        if facts["model_type"] == "mistral3":  # where the file is silent, the checkpoint's tensors decide
            facts["tie_word_embeddings"] = text.get("tie_word_embeddings", False)
        config = transformers.AutoConfig.for_model(**(facts | {"text_config": text} if "text_config" in facts else text))
        with torch.device("meta"):
            model = families.auto_class(config).from_config(config)
        # Of a multimodal one the language model; some tensors of the files are buffers in transformers.
        scalars = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(BUFFERS)]
        return sum(tensor.numel() for name, tensor in [*model.named_parameters(), *scalars]
                   if not any(part in name for part in families.OTHER_PARTS))

    def test_the_defaults_of_transformers_agree(self):
        models = published()
        for model_type, (name, keys) in DEFAULTS.items():
            with self.subTest(name):
                theirs = transformers.AutoConfig.for_model(model_type)
                ours = transformers.AutoConfig.for_model(**models[name])
                self.assertEqual({key: getattr(ours, key, None) for key in keys}, {key: getattr(theirs, key, None) for key in keys})


if __name__ == "__main__":
    live_test.main()
