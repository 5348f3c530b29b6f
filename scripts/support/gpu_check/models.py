"""Small checkpoints with random weights in bf16, written with Python's own library alone."""

import json
import math
import random

MODEL = dict(max_position_embeddings=8192, tie_word_embeddings=False, torch_dtype="bfloat16", hidden_act="silu")


def write_tokenizer(folder, size):
    """One that makes a checkpoint complete; rows of token ids don't need more."""
    vocabulary = {f"<{i}>": i for i in range(size)}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": None, "post_processor": None, "decoder": None,
         "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                   "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                   "vocab": vocabulary, "merges": []}}))


def random_bf16(draw, count, one=False):
    """Bytes of `count` bf16 numbers: ones, or of either sign between 2^-7 and 2^-6."""
    data = bytearray(2 * count)
    if one:
        data[0::2], data[1::2] = b"\x80" * count, b"\x3f" * count
        return bytes(data)
    data[0::2] = draw.randbytes(count)
    data[1::2] = draw.randbytes(count).translate(bytes(0x3C if i % 2 else 0xBC for i in range(256)))
    return bytes(data)


def write_checkpoint(folder, shapes, config):
    """Random weights of these shapes, but for norms and convolutions, whose weights are ones."""
    folder.mkdir(parents=True)
    draw, header, begin, parts = random.Random(0), {}, 0, []
    for name, shape in shapes.items():
        count = math.prod(shape)
        parts.append(random_bf16(draw, count, one="norm" in name or "conv" in name.split(".")[-2]))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, begin + 2 * count]}
        begin += 2 * count
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
    (folder / "config.json").write_text(json.dumps(MODEL | config))
    write_tokenizer(folder, 1000)


def layer_shapes(layers, shapes_of):
    return {f"model.layers.{layer}.{part}": shape for layer in range(layers) for part, shape in shapes_of(layer).items()}


def write_llama(folder, hidden=512, inner=1408, layers=8, heads=8, kv_heads=4, vocabulary=32000, experts=0):
    """A Llama of 57 million weights; with experts a Mixtral, of which a token passes two, each `inner` wide."""
    kv = hidden // heads * kv_heads
    if experts:
        mlp = {f"block_sparse_moe.experts.{e}.{part}.weight": (hidden, inner) if part == "w2" else (inner, hidden)
               for e in range(experts) for part in ("w1", "w2", "w3")}
        mlp["block_sparse_moe.gate.weight"] = (experts, hidden)
        kind = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=experts,
                    num_experts_per_tok=2, sliding_window=None)
    else:
        mlp = gated_mlp("mlp", hidden, inner)
        kind = dict(model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, mlp_bias=False)
    layer = {"self_attn.q_proj.weight": (hidden, hidden), "self_attn.k_proj.weight": (kv, hidden),
             "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, hidden),
             **mlp, "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocabulary, hidden), **layer_shapes(layers, lambda _: layer)}
    write_checkpoint(folder, shapes, dict(
        **kind, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, rms_norm_eps=1e-5, rope_theta=10000.0))


def gated_mlp(block, hidden, inner, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = (f"{block}.{name}.weight" for name in names)
    return {gate: (inner, hidden), up: (inner, hidden), down: (hidden, inner)}


def write_delta_net(folder, hidden=128, inner=256, heads=2, head=64, vocabulary=1000, taps=4):
    """A Qwen 3.5 of two layers, one with a gated delta net, one with attention."""
    kinds = ["linear_attention", "full_attention"]
    width = heads * head
    delta = {"linear_attn.in_proj_qkv.weight": (4 * width, hidden), "linear_attn.in_proj_z.weight": (2 * width, hidden),
             "linear_attn.in_proj_b.weight": (2 * heads, hidden), "linear_attn.in_proj_a.weight": (2 * heads, hidden),
             "linear_attn.out_proj.weight": (hidden, 2 * width), "linear_attn.conv1d.weight": (4 * width, 1, taps),
             "linear_attn.A_log": (2 * heads,), "linear_attn.dt_bias": (2 * heads,), "linear_attn.norm.weight": (head,)}
    attention = {"self_attn.q_proj.weight": (2 * width, hidden), "self_attn.k_proj.weight": (width, hidden),
                 "self_attn.v_proj.weight": (width, hidden), "self_attn.o_proj.weight": (hidden, width),
                 "self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    common = {**gated_mlp("mlp", hidden, inner), "input_layernorm.weight": (hidden,),
              "post_attention_layernorm.weight": (hidden,)}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocabulary, hidden),
              **layer_shapes(len(kinds), lambda layer: (attention if layer else delta) | common)}
    write_checkpoint(folder, shapes, dict(
        model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], layer_types=kinds, hidden_size=hidden,
        intermediate_size=inner, num_hidden_layers=len(kinds), num_attention_heads=heads, num_key_value_heads=heads,
        head_dim=head, vocab_size=vocabulary, rms_norm_eps=1e-6, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        linear_num_key_heads=heads, linear_num_value_heads=2 * heads, linear_key_head_dim=head,
        linear_value_head_dim=head, linear_conv_kernel_dim=taps))


def write_short_convolutions(folder, hidden=128, inner=256, heads=2, vocabulary=1000, taps=3):
    """An LFM2 of two layers, one with a gated short convolution, one with attention."""
    kinds = ["conv", "full_attention"]
    convolution = {"conv.in_proj.weight": (3 * hidden, hidden), "conv.out_proj.weight": (hidden, hidden),
                   "conv.conv.weight": (hidden, 1, taps)}
    attention = {f"self_attn.{name}.weight": (hidden, hidden) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
    attention |= {f"self_attn.{name}_layernorm.weight": (hidden // heads,) for name in ("q", "k")}
    common = {**gated_mlp("feed_forward", hidden, inner, ("w1", "w3", "w2")), "operator_norm.weight": (hidden,),
              "ffn_norm.weight": (hidden,)}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.embedding_norm.weight": (hidden,),
              **layer_shapes(len(kinds), lambda layer: (attention if layer else convolution) | common)}
    write_checkpoint(folder, shapes, dict(
        model_type="lfm2", architectures=["Lfm2ForCausalLM"], layer_types=kinds, hidden_size=hidden,
        intermediate_size=inner, block_auto_adjust_ff_dim=False, num_hidden_layers=len(kinds), num_attention_heads=heads,
        num_key_value_heads=heads, vocab_size=vocabulary, norm_eps=1e-5, conv_L_cache=taps, conv_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=True))


def write_latents(folder, hidden=128, inner=256, heads=4, plain=32, rotated=16, value=32, ranks=(48, 32), vocabulary=1000):
    """A Youtu of two layers: queries, keys and values of latents, values narrower than keys."""
    query_rank, rank = ranks
    layer = {"self_attn.q_a_proj.weight": (query_rank, hidden), "self_attn.q_b_proj.weight": (heads * (plain + rotated), query_rank),
             "self_attn.kv_a_proj_with_mqa.weight": (rank + rotated, hidden),
             "self_attn.kv_b_proj.weight": (heads * (plain + value), rank), "self_attn.o_proj.weight": (hidden, heads * value),
             "self_attn.q_a_layernorm.weight": (query_rank,), "self_attn.kv_a_layernorm.weight": (rank,),
             **gated_mlp("mlp", hidden, inner), "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden),
              **layer_shapes(2, lambda _: layer)}
    write_checkpoint(folder, shapes, dict(
        model_type="youtu", architectures=["YoutuForCausalLM"], hidden_size=hidden, intermediate_size=inner, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=query_rank, kv_lora_rank=rank, qk_nope_head_dim=plain,
        qk_rope_head_dim=rotated, v_head_dim=value, vocab_size=vocabulary, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))


def write_mamba(folder, hidden=128, inner=256, heads=2, state=64, vocabulary=1000, taps=4):
    """A Granite 4 H of two layers, one with Mamba 2, one with attention. Of eight heads: rows of the projection begin at multiples
    of 16 bytes then, as our kernels ask, in this model as in published ones."""
    kinds, head, width = ["mamba", "attention"], 32, 2 * hidden
    channels = width + 2 * state
    mamba = {"mamba.in_proj.weight": (width + channels + width // head, hidden), "mamba.out_proj.weight": (hidden, width),
             "mamba.conv1d.weight": (channels, 1, taps), "mamba.conv1d.bias": (channels,), "mamba.norm.weight": (width,),
             **{f"mamba.{name}": (width // head,) for name in ("A_log", "dt_bias", "D")}}
    attention = {f"self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
    common = {"shared_mlp.input_linear.weight": (2 * inner, hidden), "shared_mlp.output_linear.weight": (hidden, inner),
              "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,),
              **layer_shapes(len(kinds), lambda layer: (attention if layer else mamba) | common)}
    write_checkpoint(folder, shapes, dict(
        model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], layer_types=kinds, hidden_size=hidden,
        intermediate_size=inner, shared_intermediate_size=inner, num_local_experts=0, num_hidden_layers=len(kinds),
        num_attention_heads=heads, num_key_value_heads=heads, vocab_size=vocabulary, rms_norm_eps=1e-5, attention_multiplier=0.125,
        embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, position_embedding_type="nope",
        mamba_n_heads=width // head, mamba_d_head=head, mamba_d_state=state, mamba_d_conv=taps, mamba_expand=2,
        tie_word_embeddings=True))
