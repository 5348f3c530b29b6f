"""config.json of the checkpoints of families.py as transformers 4 wrote it, or as it is published."""

import transformers

from families import FULL, LINEAR, SLIDING


def to_transformers_4(config):
    """config.json as transformers 4 wrote it: the rotary settings, and what was derived from fewer keys."""
    config = dict(config)
    if config["model_type"] == "gemma3":
        # As published: the text model's settings without what was the class's default.
        default = transformers.Gemma3TextConfig().to_dict() | {"model_type": None}
        text = to_transformers_4(config["text_config"])
        config["text_config"] = {key: value for key, value in text.items() if value != default.get(key, "none")}
        config["torch_dtype"] = config.pop("dtype")
        config["transformers_version"] = "4.50.0"
        return config
    if config["model_type"].startswith("gemma4"):
        # As published: heads of the layers without a window by numbers of their own.
        text = config.get("text_config", config)
        heads = text.pop("per_layer_config")[str(text["num_hidden_layers"] - 1)]
        text |= {"global_head_dim": heads["head_dim"], "num_global_key_value_heads": heads.get("num_key_value_heads")}
        return config
    if config["model_type"] == "mistral3":
        # As published: the text model's settings alone say whether the head is tied, where it is.
        config["text_config"] = to_transformers_4(config["text_config"])
        if not config.pop("tie_word_embeddings"):
            config["text_config"].pop("tie_word_embeddings")
        config["torch_dtype"] = config.pop("dtype")
        config["transformers_version"] = "4.50.0"
        return config
    if config["model_type"] in ("qwen3_5", "qwen3_5_moe"):
        # As published, with keys that no class of transformers reads.
        config["text_config"] |= {"attn_output_gate": True, "full_attention_interval": 4, "mamba_ssm_dtype": "float32",
                                  "mlp_only_layers": [], "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
        config["transformers_version"] = "4.57.0.dev0"
        return config
    if "mrope_section" in config.get("text_config", {}).get("rope_parameters", {}):
        return qwen_vl_to_transformers_4(config)
    rope = dict(config.pop("rope_parameters"))
    family = config["model_type"]
    if family == "gemma3_text":
        config["rope_local_base_freq"] = rope[SLIDING]["rope_theta"]
        rope = dict(rope[FULL])
        config["sliding_window_pattern"] = config.pop("layer_types").index(FULL) + 1
    if family == "olmo3":  # its scaling is that of the layers without a window
        rope = dict(rope[FULL])
    if family == "phi3" and rope["rope_type"] == "longrope":
        del rope["original_max_position_embeddings"]
    theta, partial = rope.pop("rope_theta"), rope.pop("partial_rotary_factor", None)
    if family == "gpt_neox":
        config["rotary_emb_base"], config["rotary_pct"] = theta, partial
        if not config["use_parallel_residual"]:  # as its last versions wrote: under both names
            config["rope_theta"], config["partial_rotary_factor"] = theta, partial
    else:
        config["rope_theta"] = theta
        if partial is not None:
            config["partial_rotary_factor"] = partial
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    if family == "smollm3":
        config.pop("no_rope_layers")
    if family == "qwen3_next":  # as published
        config["full_attention_interval"] = config["layer_types"].index(FULL) + 1
    if family == "qwen3_moe":  # as published
        config["num_experts"] = config.pop("num_local_experts")
    if family == "cohere2":
        config["sliding_window_pattern"] = config["layer_types"].index(FULL) + 1
    if family == "granitemoehybrid":
        config["layer_types"] = ["mamba" if kind == LINEAR else "attention" for kind in config["layer_types"]]
    if family in ("bamba", "granitemoehybrid"):  # as published
        config.pop("time_step_limit")
    if family == "starcoder2":  # as published
        config |= {"norm_type": "layer_norm", "mlp_type": "default"}
        if config["tie_word_embeddings"]:  # the default of all classes
            config.pop("tie_word_embeddings")
    if family == "lfm2":  # as published
        types = config.pop("layer_types")
        config |= {"full_attn_idxs": [i for i, kind in enumerate(types) if kind == FULL], "block_ff_dim": config.pop("intermediate_size"),
                   "tie_embedding": config.pop("tie_word_embeddings")}
    if family == "lfm2_moe":  # as published
        config["tie_embedding"] = config.pop("tie_word_embeddings")
    if family in ("deepseek_v2", "deepseek_v3"):  # as published
        config.pop("head_dim")
        config |= {"scoring_func": "softmax"} if family == "deepseek_v2" else {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}
        config |= {"aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "seq_aux": True}
    if family == "gpt_oss":  # as published
        config |= {"experts_per_token": config["num_experts_per_tok"], "initial_context_length": 64}
        config.pop("swiglu_alpha")
    if family not in ("exaone4", "gpt_oss", "granitemoehybrid", "lfm2_moe", "ministral", "olmo3", "qwen2_moe", "qwen3_5_moe_text", "qwen3_5_text"):
        config.pop("layer_types", None)
    config["torch_dtype"] = config.pop("dtype", None)
    config["transformers_version"] = "4.46.0"
    return config


def qwen_vl_to_transformers_4(config):
    """As published: Qwen3-VL's text_config, and the language model's settings at the top level before it."""
    text = config.pop("text_config")
    rope = {key: value for key, value in text["rope_parameters"].items() if key.startswith("mrope")}
    text = to_transformers_4(text) | {"rope_scaling": rope | {"rope_type": "default"}}
    if config["model_type"] in ("qwen3_vl", "qwen3_vl_moe"):
        config["text_config"] = text
    else:
        config = text | config | {"rope_scaling": rope | {"type": "mrope"}}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.50.0"
    return config
