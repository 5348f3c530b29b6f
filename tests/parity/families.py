"""Small random checkpoints of every family but Llama (tiny_llama.py has that one): a line a variant.

A variant is what its config has beside `SIZES`. Weights are drawn wide, norms and biases away from their neutral
values, so that each part of a model moves its logits, and caps are low enough that logits reach them: a comparison
would otherwise pass whatever the model computes.
"""

import copy
import json

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCABULARY = 48
SIZES = dict(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None,
             tie_word_embeddings=False)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.3],
            "long_factor": [1.5, 3.0, 8.0]}
# Three of four pairs of a head of 8 in the blend or behind it.
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0,
        "beta_slow": 1.0}
# Queries are scaled from position 16 on, and angles are others on both sides of each pair of the blend.
MINISTRAL = YARN | {"rope_theta": 10.0, "original_max_position_embeddings": 16, "beta_fast": 1.0, "beta_slow": 0.25,
                    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.8}
SWITCH = 24  # positions at which longrope's factors change
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
# Two value heads for each key head, of other widths. At the class's eps of 1e-6 rounding decides what the norm behind the rule makes of a
# sequence's first rows, which are small: transformers' own gradients then differ by 1e-4 for a start that differs in the last bit.
DELTA_NET = dict(rms_norm_eps=1e-3, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=10)
# Chunks are shorter than sequences. At an eps of 1e-6 rounding would decide what the norm behind the state space makes of small rows.
MAMBA = dict(rms_norm_eps=1e-3, mamba_n_heads=4, mamba_d_state=6, mamba_chunk_size=16)
GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.7, logits_scaling=2.5, shared_intermediate_size=40)
# Of layers without a window a part of all pairs is rotated, by the frequencies of whole heads.
PROPORTIONAL = {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000.0},
                SLIDING: ROPE | {"rope_theta": 100.0}}
GEMMA4 = dict(head_dim=8, global_head_dim=16, hidden_size_per_layer_input=0, sliding_window=8, pad_token_id=2, rope_parameters=PROPORTIONAL)
# E2B's form: the last two layers read the keys and values of the two before, and each layer has an input of its own. What that adds is
# small before its norm: at the class's eps of 1e-6 transformers' own gradients in fp32 are up to 1e-4 from those in fp64.
GEMMA4_SHARED = dict(GEMMA4, num_hidden_layers=5, layer_types=[SLIDING, SLIDING, FULL, SLIDING, FULL], num_kv_shared_layers=2,
                     hidden_size_per_layer_input=6, vocab_size_per_layer_input=VOCABULARY, rms_norm_eps=1e-2)
# 26B-A4B's form: experts beside each MLP.
GEMMA4_EXPERTS = dict(GEMMA4, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=32, rms_norm_eps=1e-3)
# Experts, and the expert that every token passes.
SHARED = dict(moe_intermediate_size=24, shared_expert_intermediate_size=28)

# Latent attention: keys of 14, of which all heads share 8.
LATENT = dict(num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=8)
LATENT_EXPERTS = dict(LATENT, moe_intermediate_size=24, n_shared_experts=1)

# The vision tower that a multimodal checkpoint has beside its language model.
VISION = dict(vision_config=dict(hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=1,
                                 image_size=4, patch_size=2, num_channels=1),
              mm_tokens_per_image=4, boi_token_index=VOCABULARY - 3, eoi_token_index=VOCABULARY - 2,
              image_token_index=VOCABULARY - 1)

PIXTRAL = dict(vision_config=VISION["vision_config"] | dict(model_type="pixtral", head_dim=4), image_token_index=VOCABULARY - 1)
# No token of the tests stands for an image, a video or a sound.
GEMMA4_VISION = dict(vision_config=dict(hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                                        head_dim=4, patch_size=2, position_embedding_size=4), audio_config=None)
QWEN_VISION = dict(depth=1, num_heads=1, in_channels=1, patch_size=2, temporal_patch_size=1, out_hidden_size=24)
# The families of MULTIMODAL have these beside their text_config.
MULTIMODAL = {"gemma3": VISION, "gemma4": GEMMA4_VISION,
              "gemma4_unified": dict(vision_config=dict(patch_size=2, pooling_kernel_size=2, mm_embed_dim=8, mm_posemb_size=4,
                                                        output_proj_dims=24),
                                     audio_config=dict(audio_embed_dim=6)),
              "mistral3": PIXTRAL,
              "qwen2_vl": dict(vision_config=QWEN_VISION | dict(embed_dim=8, hidden_size=24, mlp_ratio=1)),
              "qwen2_5_vl": dict(vision_config=QWEN_VISION | dict(hidden_size=8, intermediate_size=6)),
              "qwen3_vl": dict(vision_config=QWEN_VISION | dict(hidden_size=8, intermediate_size=6, num_position_embeddings=4,
                                                                deepstack_visual_indexes=[0])),
              "qwen3_vl_moe": dict(vision_config=QWEN_VISION | dict(hidden_size=8, intermediate_size=6, num_position_embeddings=4,
                                                                    deepstack_visual_indexes=[0])),
              "qwen3_5": dict(vision_config=QWEN_VISION | dict(hidden_size=8, intermediate_size=6, num_position_embeddings=4)),
              "qwen3_5_moe": dict(vision_config=QWEN_VISION | dict(hidden_size=8, intermediate_size=6, num_position_embeddings=4))}
# What the names of their other parts have.
OTHER_PARTS = ("vision_tower", "multi_modal_projector", "visual.", "embed_vision", "embed_audio", "vision_embedder")

# family's model_type -> variant -> what differs from SIZES.
FAMILIES = {
    "mistral": {
        "window-head-dim": dict(sliding_window=8, head_dim=8, rope_parameters=ROPE),
        "nemo": dict(sliding_window=None, head_dim=10, rope_parameters=ROPE | {"rope_theta": 1000000.0}),
        "yarn": dict(sliding_window=None, head_dim=8,
                     rope_parameters=YARN | {"truncate": False, "mscale": 2.0, "mscale_all_dim": 0.5}),
    },
    "ministral": {
        "by-type": dict(sliding_window=8, head_dim=8, layer_types=[FULL, SLIDING], rope_parameters=ROPE),
    },
    "ministral3": {
        "window": dict(sliding_window=8, head_dim=8, rope_parameters=MINISTRAL),
    },
    "qwen2": {
        "tied-window-unused": dict(tie_word_embeddings=True, sliding_window=8, rope_parameters=ROPE),
        "window-above": dict(use_sliding_window=True, sliding_window=8, max_window_layers=1, rope_parameters=ROPE),
    },
    "qwen3": {
        "plain": dict(head_dim=8, rope_parameters=ROPE),
        "biases": dict(head_dim=8, attention_bias=True, tie_word_embeddings=True, rope_parameters=ROPE),
        "yarn": dict(head_dim=8, rope_parameters=YARN),
    },
    "qwen3_5_text": {
        "three-taps": dict(DELTA_NET, head_dim=8, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR], linear_conv_kernel_dim=3,
                           attention_bias=True, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "qwen3_5_moe_text": {
        "experts": dict(DELTA_NET, **SHARED, head_dim=8, layer_types=[LINEAR, FULL], num_experts=5, num_experts_per_tok=4,
                        rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "qwen3_next": {
        "fused": dict(DELTA_NET, **SHARED, head_dim=8, layer_types=[LINEAR, FULL], num_experts=5, num_experts_per_tok=2,
                      attention_bias=True, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "qwen2_moe": {
        "plain": dict(SHARED, num_experts=6, num_experts_per_tok=3, rope_parameters=ROPE),
        "windows-normalized": dict(SHARED, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, qkv_bias=False, use_sliding_window=True,
                                   sliding_window=8, layer_types=[FULL, SLIDING], tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "qwen3_moe": {
        "normalized": dict(head_dim=8, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
                           rope_parameters=ROPE),
        "window-biases": dict(head_dim=8, moe_intermediate_size=24, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False,
                              use_sliding_window=True, sliding_window=8, attention_bias=True, tie_word_embeddings=True,
                              rope_parameters=ROPE),
    },
    "mixtral": {
        "window": dict(intermediate_size=40, sliding_window=8, head_dim=8, num_local_experts=4, num_experts_per_tok=2, rope_parameters=ROPE),
    },
    "olmoe": {
        "plain": dict(intermediate_size=40, num_experts=4, num_experts_per_tok=2, rope_parameters=ROPE),
    },
    "gpt_oss": {
        "windows": dict(hidden_size=32, intermediate_size=64, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                        layer_types=[SLIDING, FULL], rope_parameters=YARN | {"truncate": False}),
    },
    "phi3": {
        "window": dict(sliding_window=8, rope_parameters=ROPE),
        "longrope": dict(original_max_position_embeddings=SWITCH, rope_parameters=LONGROPE),
        "partial-longrope": dict(hidden_size=32, original_max_position_embeddings=SWITCH, tie_word_embeddings=True,
                                 rope_parameters=LONGROPE | {"partial_rotary_factor": 0.75}),
    },
    "gpt_neox": {
        "parallel": dict(hidden_size=32, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
        "sequential": dict(hidden_size=32, num_attention_heads=2, use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False,
                           rope_parameters=ROPE | {"partial_rotary_factor": 0.25}),
    },
    "falcon": {
        "7b": dict(tie_word_embeddings=True),
        "40b": dict(tie_word_embeddings=True, new_decoder_architecture=True, num_kv_heads=2, bias=True),
        "11b": dict(tie_word_embeddings=True, new_decoder_architecture=True, num_kv_heads=2,
                    num_ln_in_parallel_attn=1),
        "per-head": dict(multi_query=False, parallel_attn=False, bias=True, ffn_hidden_size=40),
    },
    "gemma": {
        "plain": dict(head_dim=8, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "gemma2": {
        "plain": dict(head_dim=8, tie_word_embeddings=True, query_pre_attn_scalar=5, sliding_window=8,
                      attn_logit_softcapping=2.0, final_logit_softcapping=3.0, rope_parameters=ROPE),
    },
    "gemma3_text": {
        "linear-rope": dict(head_dim=8, tie_word_embeddings=True, query_pre_attn_scalar=5, sliding_window=8,
                            num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL],
                            rope_parameters={FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
                                             SLIDING: ROPE}),
    },
    "gemma4_text": {
        "keys-as-values": dict(GEMMA4, num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL], attention_k_eq_v=True,
                               num_global_key_value_heads=1, final_logit_softcapping=3.0, tie_word_embeddings=True),
        "biases": dict(GEMMA4, layer_types=[SLIDING, FULL], attention_bias=True,
                       rope_parameters=PROPORTIONAL | {FULL: PROPORTIONAL[FULL] | {"factor": 4.0}}),
        "experts": dict(GEMMA4_EXPERTS, num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL], attention_k_eq_v=True,
                        num_global_key_value_heads=1, final_logit_softcapping=3.0, tie_word_embeddings=True),
        "shared-keys-wide": dict(GEMMA4_SHARED, use_double_wide_mlp=True, final_logit_softcapping=3.0, tie_word_embeddings=True),
    },
    "olmo2": {
        "plain": dict(rope_parameters=ROPE),
    },
    "olmo3": {
        "yarn": dict(hidden_size=32, sliding_window=8, layer_types=[SLIDING, FULL],
                     rope_parameters={FULL: YARN, SLIDING: ROPE | {"rope_theta": 100.0}}),
    },
    "exaone4": {
        "windows": dict(head_dim=8, sliding_window=8, sliding_window_pattern="LG", layer_types=[SLIDING, FULL],
                        rope_parameters=ROPE),
        "no-window": dict(sliding_window=None, sliding_window_pattern=None, layer_types=[FULL, FULL], tie_word_embeddings=True,
                          rope_parameters=ROPE),
    },
    "seed_oss": {
        "plain": dict(head_dim=8, rope_parameters=ROPE),
    },
    "smollm3": {
        "plain": dict(num_hidden_layers=3, no_rope_layer_interval=2, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "granite": {
        "plain": dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.7,
                      logits_scaling=2.5, attention_bias=True, mlp_bias=True, rope_parameters=ROPE),
    },
    "granitemoehybrid": {
        "dense": dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.7, logits_scaling=2.5,
                      num_local_experts=0, shared_intermediate_size=40, position_embedding_type="rope",
                      layer_types=["full_attention"] * 2, mamba_n_heads=4, tie_word_embeddings=True, rope_parameters=ROPE),
        "hybrid": dict(MAMBA, **GRANITE, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR], num_local_experts=0, mamba_n_groups=2,
                       tie_word_embeddings=True, rope_parameters=ROPE),
        "experts": dict(MAMBA, **GRANITE, layer_types=[LINEAR, FULL], intermediate_size=24, num_local_experts=5, num_experts_per_tok=2, mamba_d_conv=3,
                        mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True, position_embedding_type="rope", rope_parameters=ROPE),
    },
    "bamba": {
        "hybrid": dict(MAMBA, hidden_size=32, num_hidden_layers=3, attn_layer_indices=[1], mamba_n_groups=2, attention_bias=True, mlp_bias=True,
                       rope_parameters=ROPE),
        "tied": dict(MAMBA, hidden_size=32, attn_layer_indices=[0], mamba_d_conv=3, mamba_conv_bias=False, mamba_proj_bias=True,
                     tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "starcoder2": {
        "window": dict(tie_word_embeddings=True, sliding_window=8, rope_parameters=ROPE),
    },
    "stablelm": {
        "plain": dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True,
                      rope_parameters=ROPE | {"partial_rotary_factor": 0.25}),
        "parallel": dict(hidden_size=32, use_parallel_residual=True,
                         rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "glm": {
        "partial": dict(head_dim=8, attention_bias=True, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "glm4": {
        "norms-behind": dict(head_dim=8, attention_bias=False, tie_word_embeddings=True,
                             rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "cohere": {
        "plain": dict(hidden_size=32, logit_scale=0.3, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "cohere2": {
        "windows": dict(hidden_size=32, num_hidden_layers=3, sliding_window=8, attention_bias=True, logit_scale=0.5,
                        tie_word_embeddings=True,
                        layer_types=[SLIDING, SLIDING, FULL], rope_parameters=ROPE),
    },
    "ernie4_5": {
        "biases": dict(head_dim=8, use_bias=True, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    # What the text_config of multimodal ones has.
    "mistral3": {
        "nested-untied": dict(model_type="mistral", sliding_window=None, head_dim=8, rope_parameters=ROPE),
        "ministral-tied": dict(model_type="ministral3", head_dim=8, tie_word_embeddings=True, rope_parameters=MINISTRAL),
    },
    "lfm2": {
        "tied": dict(num_hidden_layers=3, layer_types=["conv", FULL, "conv"], block_auto_adjust_ff_dim=False, tie_word_embeddings=True,
                     rope_parameters=ROPE),
        "four-taps": dict(layer_types=[FULL, "conv"], conv_L_cache=4, intermediate_size=61, block_multiple_of=8, block_ffn_dim_multiplier=0.9,
                          head_dim=8, rope_parameters=ROPE),
    },
    "lfm2_moe": {
        "experts": dict(num_hidden_layers=4, layer_types=["conv", FULL, "conv", FULL], num_dense_layers=1, moe_intermediate_size=24, num_experts=5,
                        num_experts_per_tok=2, routed_scaling_factor=1.7, tie_word_embeddings=True, rope_parameters=ROPE),
        "without-bias": dict(layer_types=["conv", FULL], num_dense_layers=0, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=3,
                             use_expert_bias=False, norm_topk_prob=False, rope_parameters=ROPE),
    },
    "ernie4_5_moe": {
        "shared": dict(num_hidden_layers=4, moe_intermediate_size=24, moe_num_experts=5, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1,
                       moe_layer_end_index=2, head_dim=8, rope_parameters=ROPE),
        "interval": dict(num_hidden_layers=3, moe_intermediate_size=24, moe_num_experts=4, moe_k=3, moe_num_shared_experts=0, moe_layer_start_index=0,
                         moe_layer_interval=2, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "glm4_moe": {
        "biases": dict(num_hidden_layers=3, head_dim=8, moe_intermediate_size=24, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2,
                       first_k_dense_replace=1, attention_bias=True, routed_scaling_factor=1.7, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
        "groups": dict(head_dim=8, moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1,
                       n_group=4, topk_group=2, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
        "norms": dict(head_dim=8, moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=0,
                      use_qk_norm=True, norm_topk_prob=False, rope_parameters=ROPE | {"partial_rotary_factor": 0.5}),
    },
    "glm4_moe_lite": {
        "wide-values": dict(LATENT_EXPERTS, v_head_dim=16, n_routed_experts=5, num_experts_per_tok=2, mlp_layer_types=["sparse", "dense"],
                            rope_parameters=ROPE),
    },
    "deepseek_v2": {
        "lite": dict(LATENT_EXPERTS | {"q_lora_rank": None, "n_shared_experts": 2}, v_head_dim=6, n_routed_experts=5, num_experts_per_tok=2,
                     first_k_dense_replace=1, routed_scaling_factor=1.7, rope_parameters=ROPE),
        "groups": dict(LATENT_EXPERTS, v_head_dim=6, n_routed_experts=12, num_experts_per_tok=4, topk_method="group_limited_greedy", n_group=4,
                       topk_group=2, attention_bias=True, rope_parameters=YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}),
    },
    "deepseek_v3": {
        "groups": dict(LATENT_EXPERTS, v_head_dim=14, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2, attention_bias=True,
                       first_k_dense_replace=1, rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}),
        "halves": dict(LATENT_EXPERTS | {"q_lora_rank": None}, v_head_dim=10, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
                       first_k_dense_replace=0, norm_topk_prob=False, rope_interleave=False, rope_parameters=ROPE),
    },
    "youtu": {
        "tied": dict(LATENT, v_head_dim=10, tie_word_embeddings=True, rope_parameters=ROPE),
    },
    "minicpm3": {
        "multipliers": dict(LATENT | {"qk_rope_head_dim": 6}, v_head_dim=None, mlp_bias=True, tie_word_embeddings=True, scale_emb=3, scale_depth=0.9,
                            dim_model_base=12, rope_parameters=LONGROPE | {"original_max_position_embeddings": SWITCH}),
    },
    "qwen2_vl": {
        "tied": dict(tie_word_embeddings=True, rope_parameters=ROPE | {"mrope_section": [1, 1, 1]}),
    },
    "qwen2_5_vl": {
        "window-above": dict(use_sliding_window=True, sliding_window=8, max_window_layers=1,
                             rope_parameters=ROPE | {"mrope_section": [1, 1, 1]}),
    },
    "qwen3_vl": {
        "tied": dict(head_dim=8, tie_word_embeddings=True,
                     rope_parameters=ROPE | {"mrope_section": [2, 1, 1], "mrope_interleaved": True}),
    },
    "qwen3_vl_moe": {
        "experts": dict(head_dim=8, moe_intermediate_size=32, num_experts=5, num_experts_per_tok=2, attention_bias=True,
                        rope_parameters=ROPE | {"mrope_section": [2, 1, 1], "mrope_interleaved": True}),
    },
    "qwen3_5": {
        "nested-tied": dict(DELTA_NET, head_dim=8, num_hidden_layers=4, linear_conv_kernel_dim=4, tie_word_embeddings=True,
                            rope_parameters=ROPE | {"partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1],
                                                    "mrope_interleaved": True}),
    },
    "qwen3_5_moe": {
        "nested-tied": dict(DELTA_NET, **SHARED, head_dim=8, layer_types=[FULL, LINEAR], num_experts=5, num_experts_per_tok=2,
                            tie_word_embeddings=True,
                            rope_parameters=ROPE | {"partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1],
                                                    "mrope_interleaved": True}),
    },
    "gemma3": {
        "nested": dict(head_dim=8, tie_word_embeddings=True, query_pre_attn_scalar=5, sliding_window=8,
                       num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL],
                       rope_parameters={FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
                                        SLIDING: ROPE}),
        "nested-untied": dict(head_dim=8, tie_word_embeddings=False, query_pre_attn_scalar=5, sliding_window=8,
                              layer_types=[SLIDING, FULL],
                              rope_parameters={FULL: ROPE | {"rope_theta": 1000000.0}, SLIDING: ROPE}),
    },
    "gemma4": {
        "nested": dict(GEMMA4, layer_types=[SLIDING, FULL], attention_k_eq_v=True, num_global_key_value_heads=1, attention_bias=True,
                       final_logit_softcapping=3.0, use_bidirectional_attention="vision", tie_word_embeddings=True),
        "nested-experts": dict(GEMMA4_EXPERTS, layer_types=[SLIDING, FULL], top_k_experts=4, tie_word_embeddings=True),
        "shared-keys": dict(GEMMA4_SHARED, attention_k_eq_v=True, num_global_key_value_heads=1, tie_word_embeddings=True),
    },
    "gemma4_unified": {
        "nested": dict(GEMMA4, layer_types=[SLIDING, FULL], attention_k_eq_v=True, num_global_key_value_heads=2,
                       final_logit_softcapping=3.0, tie_word_embeddings=True),
    },
}


def variants():
    """(family, variant) of every checkpoint."""
    return [(family, variant) for family, of in FAMILIES.items() for variant in of]


def make_config(family, variant, **more):
    config_class = transformers.CONFIG_MAPPING[family]
    sizes = dict(SIZES)
    if family in ("falcon", "gpt_neox"):
        del sizes["num_key_value_heads"]
    if family == "falcon":
        sizes["ffn_hidden_size"] = sizes.pop("intermediate_size")
    settings = copy.deepcopy(sizes | FAMILIES[family][variant] | more)  # transformers fills in rope_parameters
    if "vocab_size_per_layer_input" in settings:
        settings["vocab_size_per_layer_input"] = settings["vocab_size"]
    if family in MULTIMODAL:
        return config_class(text_config=settings, tie_word_embeddings=settings["tie_word_embeddings"], **MULTIMODAL[family])
    return config_class(**settings)


def auto_class(config):
    """The class that makes a model of a config: AutoModelForCausalLM knows few multimodal ones, and makes of Qwen 3.5's
    one without its vision tower."""
    known = config.model_type not in MULTIMODAL and type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    return transformers.AutoModelForCausalLM if known else transformers.AutoModelForImageTextToText


def make_checkpoint(folder, family, variant, dtype=torch.float32, seed=0, **more):
    """Writes a checkpoint in the layout of the transformers installed; returns the folder."""
    torch.manual_seed(seed)
    config = make_config(family, variant, **more)
    model = auto_class(config).from_config(config)
    # A norm's neutral value is a scale of 1, which Gemma, Qwen3-Next and Qwen 3.5 store as 0, but for the one in delta nets.
    stored_without_1 = family.startswith(("gemma", "qwen3_5", "qwen3_next")) and not family.startswith("gemma4")
    neutral = 0.0 if stored_without_1 else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.2)
            if name.endswith(("router.scale", "per_expert_scale")):  # Gemma 4's
                parameter.mul_(3.0).add_(1.0)
            if parameter.dim() == 1 and name.endswith("weight"):
                parameter.add_(1.0 if name.endswith("linear_attn.norm.weight") else neutral)
            if family.startswith("gemma4") and name.endswith("q_norm.weight"):  # whose scores nothing else scales
                parameter.mul_(0.3)
            if name.endswith("experts.gate_up_proj_bias"):  # so that gpt-oss' clamps act
                parameter.mul_(30.0)
            if name.endswith("e_score_correction_bias"):  # so that it changes some choices
                parameter.mul_(0.3)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):  # Gemma 4's, which its files have
                buffer.uniform_(0.5, 1.5)
            if name.endswith(("expert_bias", "e_score_correction_bias")):
                buffer.normal_(0.0, 0.1)
    model.to(dtype).save_pretrained(folder)
    if family == "qwen3_vl_moe":
        transpose_experts(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return folder


def transpose_experts(folder):
    """As published; transformers finds out by the extents, and saves what it made itself the other way."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.transpose(1, 2).contiguous() if tensor.dim() == 3 and "experts" in name else tensor
               for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def read_config(folder):
    return json.loads((folder / "config.json").read_text())
