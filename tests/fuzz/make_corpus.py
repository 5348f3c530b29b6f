#!/usr/bin/env python3
"""Makes tests/fuzz/corpus: small valid inputs, one of each kind, from which the fuzz targets start.

usage: .venv/bin/python tests/fuzz/make_corpus.py

Needs the packages of scripts/requirements/test.txt; the same versions give the same files.
"""

import io
import json
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa
import sentencepiece
import torch
from pyarrow import parquet
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CORPUS = Path(__file__).resolve().parent / "corpus"
TEXT = """The quick brown fox jumps over the lazy dog. A bird sat on the tall green tree and sang.
Two and two are four, as 12 and 30 are 42. She asked him what the name of the old town was."""


def save(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors(header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def make_safetensors():
    save("safetensors", "empty", safetensors({}, b""))
    save("safetensors", "one", safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)))
    several = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [12, 20]},
        "none": {"dtype": "U8", "shape": [0, 7], "data_offsets": [20, 20]},
    }
    save("safetensors", "several", safetensors(several, bytes(20)))


def make_torch_archive():
    a = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    for name, content in {"nested": {"model": OrderedDict(a=a, b=a.bfloat16()), "epoch": 3, "lr": [1e-3, None, True]},
                          "shared": {"all": a, "row": a[1], "parameter": torch.nn.Parameter(a.double())},
                          "protocol4": {"x": a.long()}}.items():
        sink = io.BytesIO()
        torch.save(content, sink, pickle_protocol=4 if name == "protocol4" else 2)
        save("torch_archive", name, sink.getvalue())


def make_json():
    save("json", "kinds", '{"a": [1, -2.5e3, true, false, null, "x\\u00e9\\ud83e\\udd9c\\n"], "b": {}, "c": []}')
    save("json", "deep", "[" * 20 + "]" * 20)
    save("json", "large", '{"i": 9223372036854775807, "u": 18446744073709551615, "d": 1e308}')
    index = {"metadata": {"total_size": 8}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    save("shard_index", "two", json.dumps(index))


def make_config():
    save("config", "least", "model: {path: base}\n")
    save("config", "flow", "model: {path: 'a b'}\nlora: {rank: 8, alpha: 1.6e1, target_modules: [q_proj, v_proj]}\n"
         "optimizer: {lr: 2e-4, betas: [0.8, 0.95]}\ndevice: cuda:1\n")
    save("config", "block", "# a run\nmodel:\n  path: base\ndata:\n  train:\n    path: rows.jsonl\n    columns:\n"
         "      prompt: question\n  validation:\n    fraction: 0.1\nbatch:\n  global_tokens: 4096\n")
    save("config", "overrides", "model: {path: base}\n\0lora.rank=4\n~lora.alpha\ndata.train.columns.a=b\nlora.init=x=y")
    save("config", "no_utf8", b"model: {path: base}\n\0data.train.columns.\xff\xff=b\nlora.init=\xe9")
    save("config", "wrong", "modle: 1\nlora: {rnak: 8, rank: x}\na: &b 1\nc: *b\n\"\\x41\": |\n  text\n")


def make_adapter_config():
    least = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
    save("adapter_config", "least", json.dumps(least))
    save("adapter_config", "pattern", json.dumps({**least, "target_modules": "all-linear"}))
    # The keys that PEFT 0.18 writes.
    nothing = ("alora_invocation_tokens", "arrow_config", "auto_mapping", "corda_config", "ensure_weight_tying",
               "eva_config", "exclude_modules", "layer_replication", "layers_pattern", "layers_to_transform",
               "loftq_config", "megatron_config", "modules_to_save", "revision", "target_parameters",
               "trainable_token_indices")
    empty = {"alpha_pattern": {}, "rank_pattern": {}, "fan_in_fan_out": False, "lora_bias": False, "use_dora": False,
             "use_qalora": False}
    whole = {**least, **dict.fromkeys(nothing), **empty, "base_model_name_or_path": "base", "bias": "none",
             "inference_mode": True, "init_lora_weights": True, "lora_alpha": 12.5, "lora_dropout": 0.05,
             "task_type": "CAUSAL_LM", "use_rslora": True}
    save("adapter_config", "peft", json.dumps(whole, indent=2, sort_keys=True))
    save("adapter_config", "gaussian", json.dumps({**least, "init_lora_weights": "gaussian", "use_dora": None}))
    save("adapter_config", "stacks", json.dumps({**least, "target_modules": [], "rank_pattern": {"down_proj": 4},
                                                 "target_parameters": ["mlp.experts.gate_up_proj", "experts.down_proj"]}))
    save("adapter_config", "rules", json.dumps({**least, "target_modules": r".*\.(q|up)_proj", "exclude_modules": ["k_proj"],
                                                "layers_to_transform": [0, 1], "layers_pattern": "layers",
                                                "rank_pattern": {"up_proj": 4, r"layers\.[01]\..*": 2},
                                                "alpha_pattern": {"^up_proj": 0.5}, "use_dora": True}))


def make_model_config():
    llama = {"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
             "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
             "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu",
             "tie_word_embeddings": True}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    save("model_config", "first", json.dumps({**llama, "rope_scaling": None, "num_key_value_heads": None}))
    save("model_config", "linear", json.dumps({**llama, "rope_theta": 10000.0, "mlp_bias": True, "head_dim": 16,
                                               "rope_scaling": {"type": "linear", "factor": 2}}))
    save("model_config", "llama3", json.dumps({**llama, "rope_theta": 500000.0, "rope_scaling": llama3}))
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64], "symmetric": True}
    for name, settings in (("fp8", {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
                           ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
                           ("compressed", {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}})):
        save("model_config", name, json.dumps({**llama, "quantization_config": settings}))
    save("model_config", "new_layout",
         json.dumps({**llama, "attention_bias": True, "rope_parameters": {**llama3, "rope_theta": 500000.0}}))


def make_quantization_state():
    # As bitsandbytes 0.50.2 writes them.
    for kind, nested in (("nf4", True), ("fp4", False)):
        state = {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": [3072, 1024]}
        if nested:
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0437}
        save("quantization_state", kind, json.dumps(state))


def make_topology():
    fixtures = CORPUS.parents[1] / "data" / "topology"
    for name in ("bridged_pairs_0_1", "container_empty_cells", "mig_beside_whole_cards"):
        save("topology", name, (fixtures / f"{name}.txt").read_bytes())
    pair = {"gpus": [{"label": "GPU0", "model": "A", "cpus": "0-3", "pcie_width": 16}, {"label": "GPU1", "mig": True}],
            "nics": [{"label": "NIC0", "name": "mlx5_0"}],
            "links": [["X", "NV4", "PIX"], ["NV4", "X", "?"], ["PIX", "?", "X"]], "p2p": [[None, True], [True, None]],
            "measured": {"pairs_gb_per_second": [[None, 9.5], [9, None]],
                         "sets": [{"gpus": [0, 1], "gb_per_second": 8}]}}
    save("topology", "json", json.dumps(pair))


def special(tokenizer, *names):
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])


def make_tokenizer_json():
    # GPT-2's and Llama 3's kind: byte-level BPE, a pattern, a template.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("\u0120", "t"), ("h", "e"), ("\u0120t", "he"), ("a", "n")]
    vocab = {token: i for i, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    byte_level = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
                             "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    byte_level.decoder = decoders.ByteLevel()
    special(byte_level, "<|begin|>")
    byte_level.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", byte_level.token_to_id("<|begin|>"))])
    save("tokenizer_json", "byte_level", byte_level.to_str())

    # Llama 2's kind: BPE with byte fallback, normalisers.
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", "t", "h", "e", "th", "the"]
    fallback = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[("t", "h"), ("th", "e")],
                                    unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    fallback.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    fallback.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])
    special(fallback, "<s>", "</s>")
    save("tokenizer_json", "byte_fallback", fallback.to_str())

    # Unigram, with the remaining parts.
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u2581the", -2.0), ("\u2581", -3.0), ("t", -4.0),
                                        ("he", -3.5), ("a", -4.5), ("1", -5.0)], unk_id=0, byte_fallback=False))
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace()])
    unigram.decoder = decoders.Metaspace()
    unigram.add_tokens([AddedToken("word", single_word=True, lstrip=True, rstrip=True)])
    save("tokenizer_json", "unigram", unigram.to_str())


def make_sentencepiece():
    for kind in ("bpe", "unigram"):
        model = io.BytesIO()
        # identity: the usual normalisation brings a table of 240 kB.
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.splitlines()), model_writer=model, model_type=kind, vocab_size=330,
            hard_vocab_limit=False, byte_fallback=True, normalization_rule_name="identity", minloglevel=2)
        save("sentencepiece", kind, model.getvalue())


def make_jinja():
    save("jinja", "chat", "{{ bos_token }}{% for m in messages if m.role != 'x' %}\n  {%- if loop.first and not m.content is none %}"
         "<|{{ m['role'] | upper }}|>{{ (m.content or '') | trim }}{% elif m.l is defined %}{{ m | tojson(indent=2) }}"
         "{% else %}{{ raise_exception('no') }}{% endif -%}\n{% endfor %}")
    save("jinja", "blocks", "{% set ns = namespace(x=0) %}{% macro f(a, b=2) %}{{ a * b ~ caller() }}{% endmacro %}"
         "{% call f(n) %}x{% endcall %}{% for i in range(n) recursive %}{% set ns.x = ns.x + i %}{% break %}{% else %}"
         "{{ loop([]) }}{% endfor %}{% set y | upper %}a{% endset %}{% filter replace('a', 'b') %}{{ y[::-1] }}{% endfilter %}"
         "{% with z = 1.5e3 %}{{ z // 7 % -2 }}{% endwith %}{% generation %}{{ strftime_now('%d') }}{% endgeneration %}")
    save("jinja", "filters", "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | join(',') }}"
         "{{ [3, 1] | sort | unique | list }}{{ {'b': 1} | dictsort }}{{ 'a b'.split(' ', 1) }}{{ '%s' % (n,) }}"
         "{{ '{0}'.format(n) }}{{ 'a\\u00e9' | indent(2) }}{% raw %}{{{% endraw %}{# c #}{{ 1 if n in (1, 2) else -n | abs }}")


def tables():
    turns = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    nested = pa.table({
        "messages": pa.array([[{"role": "user", "content": "a"}, {"role": "assistant", "content": None}], [], None], turns),
        "n": pa.array([1, None, -3], pa.int32()),
    })
    flat = pa.table({"text": ["the", "then", "them", "the"], "x": [0.5, 1.5, None, 2.0], "yes": [True, False, True, None]})
    return nested, flat


def make_parquet():
    nested, flat = tables()
    ways = {"default": {}, "v2": {"data_page_version": "2.0", "compression": "zstd"}, "plain": {"compression": "none"},
            "delta": {"use_dictionary": False, "compression": "none",
                      "column_encoding": {"text": "DELTA_BYTE_ARRAY", "x": "PLAIN", "yes": "RLE"}}}
    for way, options in ways.items():
        sink = io.BytesIO()
        parquet.write_table(flat if way == "delta" else nested, sink, store_schema=False, write_statistics=False, **options)
        save("parquet", way, sink.getvalue())


def make_arrow():
    nested, flat = tables()
    coded = pa.table({"word": pa.array(["a", None, "b"]).dictionary_encode(), "view": pa.array(["x", "y", "a longer text"], pa.string_view())})
    for name, table in {"nested": nested, "flat": flat, "coded": coded}.items():
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table, max_chunksize=2)
        save("arrow", f"stream_{name}", sink.getvalue())
    for compression in (None, "lz4", "zstd"):
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, nested.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
            out.write_table(nested, max_chunksize=2)
        save("arrow", f"file_{compression or 'stored'}", sink.getvalue())


def make_csv():
    save("csv", "quoted", 'prompt,completion\r\n"a, ""b""\nc",d\r\n\r\ne,""\r\n')
    save("csv", "one", "text\nfirst\nsecond")


if __name__ == "__main__":
    make_jinja()
    make_safetensors()
    make_torch_archive()
    make_json()
    make_config()
    make_adapter_config()
    make_model_config()
    make_quantization_state()
    make_topology()
    make_tokenizer_json()
    make_sentencepiece()
    make_parquet()
    make_arrow()
    make_csv()
