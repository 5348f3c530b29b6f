"""Converts a Hugging Face checkpoint for litgpt, by its own converter. Runs in litgpt's environment.

    make_litgpt_checkpoint.py HF_FOLDER FOLDER
"""

import json
import pathlib
import sys

from litgpt.config import name_to_config
from litgpt.scripts.convert_hf_checkpoint import convert_hf_checkpoint


def main():
    source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).symlink_to(path)
    config = json.loads((source / "config.json").read_text())
    rope = config.get("rope_parameters") or config
    qwen3 = config["model_type"] == "qwen3"
    name = "Qwen3-bench" if qwen3 else "bench"  # the converter goes by the name
    name_to_config[name] = dict(
        name=name, block_size=config["max_position_embeddings"], vocab_size=config["vocab_size"],
        padded_vocab_size=config["vocab_size"], n_layer=config["num_hidden_layers"], n_embd=config["hidden_size"],
        n_head=config["num_attention_heads"], n_query_groups=config["num_key_value_heads"], head_size=config["head_dim"],
        intermediate_size=config["intermediate_size"], norm_eps=config["rms_norm_eps"], rope_base=int(rope["rope_theta"]),
        rotary_percentage=1.0, parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
        norm_qk=qwen3)
    convert_hf_checkpoint(folder, model_name=name)


if __name__ == "__main__":
    main()
