"""What the parts of scripts/gpu-check share: arguments, programs, small models and runs."""

import json
import os
import pathlib
import random
import subprocess
import sys

from check import ROOT, SKIPPED, program_command

# Threads that wait must not keep a core busy.
ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"} | dict(os.environ)
HAS_SECONDS = 20
FP32_RELATIVE = 1e-4  # of losses in fp32: sums in another order, over some AdamW steps
EXAMPLE = ROOT / "examples" / "quickstart"


class Failure(Exception):
    """What is wrong, for the summary."""


class Run:
    """A part's arguments: the folder of the programs, the part's own folder, the device."""

    def __init__(self, arguments):
        self.programs, self.folder, self.device = pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), arguments[2]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.said = ""  # on stderr, by the last program that ended

    def command(self, program, *arguments):
        return [*program_command(self.programs, program), *map(str, arguments)]

    def start(self, program, *arguments):
        print("$", program, *arguments, flush=True)
        return subprocess.Popen(self.command(program, *arguments), env=ENVIRONMENT, cwd=ROOT, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, process, code=0):
        out, said = process.communicate()
        self.said = said
        if process.returncode != code:
            raise Failure(f"{said}\nended with exit code {process.returncode}, expected {code}: "
                          f"{(said.strip().splitlines() or ['nothing was said'])[-1]}")
        return out

    def run(self, program, *arguments):
        return self.finish(self.start(program, *arguments))

    def has(self, preset):
        """Whether the device has fast arithmetic for a precision preset, by the programs themselves; yes where they don't say."""
        words = ["doctor", "--quick", f"device={self.device}", f"precision.preset={preset}"]
        print("$ lorikeet", *words, flush=True)
        try:
            said = subprocess.run(self.command("lorikeet", *words), env=ENVIRONMENT, cwd=ROOT, text=True, capture_output=True,
                                  check=False, timeout=HAS_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        return not any(line.startswith("precision ") and " unfit " in line for line in said.stdout.splitlines())

    def half_precision(self):
        """Settings of a run in 16 bits: none where the device has bf16, which is the default."""
        return [] if self.has("bf16") else ["precision.preset=fp16"]

    def example_config(self):
        """The embedded example with short rows of settings, for runs of some steps."""
        config = self.folder / "config.yaml"
        config.write_text(
            f"model: {{ path: {EXAMPLE / 'base'} }}\n"
            f"data: {{ train: {{ path: {EXAMPLE / 'train.jsonl'}, format: alpaca }}, max_seq_len: 256,"
            f" cache_dir: {self.folder / 'cache'} }}\n"
            "batch: { global: 8 }\noptimizer: { lr: 2e-3 }\nlr_scheduler: { warmup_steps: 2, warmup_ratio: null }\n"
            "checkpoint: { save_every_steps: 100 }\n")
        return config

    def steps(self, output):
        lines = [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "loss" in line]

    def losses(self, output):
        return [line["loss"] for line in self.steps(output)]


def furthest(ours, theirs):
    """The largest relative difference of two lists of losses."""
    if len(ours) != len(theirs) or not ours:
        raise Failure(f"expected {len(theirs)} losses, got {len(ours)}")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


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


def write_llama(folder, hidden=512, inner=1408, layers=8, heads=8, kv_heads=4, vocabulary=32000, experts=0):
    """A Llama of 57 million random weights; with experts a Mixtral, of which a token passes two, each `inner` wide."""
    folder.mkdir(parents=True)
    kv = hidden // heads * kv_heads
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocabulary, hidden)}
    for layer in range(layers):
        mlp = {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        if experts:
            mlp = {f"block_sparse_moe.experts.{e}.{part}": (hidden, inner) if part == "w2" else (inner, hidden)
                   for e in range(experts) for part in ("w1", "w2", "w3")}
            mlp["block_sparse_moe.gate"] = (experts, hidden)
        for part, shape in {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
                            "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
                            **mlp, "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
            shapes[f"model.layers.{layer}.{part}.weight"] = shape
    draw, header, begin, parts = random.Random(0), {}, 0, []
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        parts.append(random_bf16(draw, count, one=len(shape) == 1))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, begin + 2 * count]}
        begin += 2 * count
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
    kind = dict(model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, mlp_bias=False)
    if experts:
        kind = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=experts,
                    num_experts_per_tok=2, sliding_window=None)
    (folder / "config.json").write_text(json.dumps(dict(
        **kind, hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocabulary,
        rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=8192, tie_word_embeddings=False,
        torch_dtype="bfloat16", hidden_act="silu")))
    write_tokenizer(folder, 1000)


def main(part):
    """Runs `part(run)`, which returns the words of a success; the last line printed is for the summary."""
    try:
        print(part(Run(sys.argv[1:])))
    except Failure as failure:
        print(failure)
        sys.exit(1)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
