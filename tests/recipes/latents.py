"""A model with latent attention, made of the example's: see write_latents."""

import json
import shutil

import harness
from delta_net import drawer

PLAIN, ROTATED, VALUE = 16, 8, 16  # of a head
QUERY_RANK, RANK = 24, 16


def write_latents(folder):
    """Youtu with the example's embedding and MLPs; attention is drawn. Keys are wider than values, so that heads are filled up."""
    base = harness.EXAMPLE / "base"
    shutil.copytree(base, folder)
    config = json.loads((base / "config.json").read_text())
    for key in ("attention_bias", "head_dim", "mlp_bias", "pretraining_tp"):
        config.pop(key, None)
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    config |= {"model_type": "youtu", "architectures": ["YoutuForCausalLM"], "num_key_value_heads": heads, "q_lora_rank": QUERY_RANK,
               "kv_lora_rank": RANK, "qk_nope_head_dim": PLAIN, "qk_rope_head_dim": ROTATED, "v_head_dim": VALUE}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    drawn = drawer(9)
    tensors = {name: tensor for name, tensor in harness.read_tensors(base / "model.safetensors").items() if "self_attn" not in name}
    for i in range(config["num_hidden_layers"]):
        block = f"model.layers.{i}.self_attn"
        tensors |= {f"{block}.{norm}.weight": drawn([width], 0.1, 1.0)
                    for norm, width in (("q_a_layernorm", QUERY_RANK), ("kv_a_layernorm", RANK))}
        shapes = {"q_a_proj": [QUERY_RANK, hidden], "q_b_proj": [heads * (PLAIN + ROTATED), QUERY_RANK],
                  "kv_a_proj_with_mqa": [RANK + ROTATED, hidden], "kv_b_proj": [heads * (PLAIN + VALUE), RANK],
                  "o_proj": [hidden, heads * VALUE]}
        tensors |= {f"{block}.{name}.weight": drawn(shape, 0.05) for name, shape in shapes.items()}
    harness.write_tensors(folder / "model.safetensors", tensors)
    return folder
