"""Adapters that torchtune and litgpt saved with torch.save become PEFT adapters with the same change of every weight."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file

RANK, ALPHA = 4, 12
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 80}
Q, KV, D, I = 48, 16, 48, 80
SHAPES = {"q_proj": (Q, D), "k_proj": (KV, D), "v_proj": (KV, D), "o_proj": (D, Q),
          "gate_proj": (I, D), "up_proj": (I, D), "down_proj": (D, I)}
TUNE = {"q_proj": "attn.q_proj", "k_proj": "attn.k_proj", "v_proj": "attn.v_proj", "o_proj": "attn.output_proj",
        "gate_proj": "mlp.w1", "up_proj": "mlp.w3", "down_proj": "mlp.w2"}
LITGPT = {"o_proj": "attn.proj", "gate_proj": "mlp.fc_1", "up_proj": "mlp.fc_2", "down_proj": "mlp.proj"}


def factors(seed, modules=SHAPES):
    """{layer: {module: (A, B)}} as Hugging Face has the rows."""
    draw = torch.Generator().manual_seed(seed)
    return {layer: {name: (torch.randn(RANK, SHAPES[name][1], generator=draw), torch.randn(SHAPES[name][0], RANK, generator=draw))
                    for name in modules} for layer in range(2)}


def meta_order(b):
    """Rows of q or k as Meta's rotary embedding has them: pairs beside each other instead of half a head apart."""
    heads = b.shape[0] // SIZES["head_dim"]
    return b.reshape(heads, 2, SIZES["head_dim"] // 2, -1).transpose(1, 2).reshape(b.shape).contiguous()


def torchtune_tensors(layers, turned, dtype=torch.float32):
    tensors = {}
    for layer, modules in layers.items():
        for name, (a, b) in modules.items():
            if turned and name in ("q_proj", "k_proj"):
                b = meta_order(b)
            tensors[f"layers.{layer}.{TUNE[name]}.lora_a.weight"] = a.to(dtype)
            tensors[f"layers.{layer}.{TUNE[name]}.lora_b.weight"] = b.to(dtype)
    return tensors


def litgpt_tensors(layers, enabled):
    tensors = {}
    for layer, modules in layers.items():
        at = f"transformer.h.{layer}."
        qkv = [modules[name] for name in enabled]
        tensors[at + "attn.qkv.lora_A"] = torch.cat([a for a, _ in qkv])
        tensors[at + "attn.qkv.lora_B"] = torch.cat([b for _, b in qkv])
        for name, theirs in LITGPT.items():
            if name in modules:
                tensors[at + theirs + ".lora_A"], tensors[at + theirs + ".lora_B"] = modules[name]
    return {"model": tensors}


def change(folder):
    """The change of every weight that a PEFT adapter makes."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    out = {}
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            b = tensors[name.replace("lora_A", "lora_B")]
            alpha = next((v for k, v in config["alpha_pattern"].items() if k.endswith(module)), config["lora_alpha"])
            rank = next((v for k, v in config["rank_pattern"].items() if k.endswith(module)), config["r"])
            assert rank == a.shape[0], (module, rank, a.shape)
            out[module] = alpha / rank * b.double() @ a.double()
    return out


def expected(layers, fused=False):
    out = {}
    for layer, modules in layers.items():
        by_name = {name: ALPHA / RANK * b.double() @ a.double() for name, (a, b) in modules.items()}
        at = f"model.layers.{layer}."
        if fused:
            by_name = {name: by_name.get(name, torch.zeros(SHAPES[name], dtype=torch.float64)) for name in SHAPES}
            out[at + "self_attn.qkv_proj"] = torch.cat([by_name[n] for n in ("q_proj", "k_proj", "v_proj")])
            out[at + "mlp.gate_up_proj"] = torch.cat([by_name[n] for n in ("gate_proj", "up_proj")])
            by_name = {name: by_name[name] for name in ("o_proj", "down_proj") if name in modules}
        for name, value in by_name.items():
            part = "mlp." if name in ("gate_proj", "up_proj", "down_proj") else "self_attn."
            out[at + part + name] = value
    return out


class AdaptersImport(unittest.TestCase):
    def setUp(self):
        self.lorikeet = pathlib.Path(os.path.abspath(sys.argv[1])) / "lorikeet"
        holder = tempfile.TemporaryDirectory(prefix="lorikeet-import-")
        self.addCleanup(holder.cleanup)
        self.work = pathlib.Path(holder.name)
        self.count = 0

    def import_(self, content, model_type="llama", *options, beside=None, name="adapter_0.pt"):
        self.count += 1
        base, source = self.work / f"base{self.count}", self.work / f"source{self.count}"
        base.mkdir()
        source.mkdir()
        (base / "config.json").write_text(json.dumps({"model_type": model_type, **SIZES}))
        if isinstance(content, bytes):
            (source / name).write_bytes(content)
        else:
            torch.save(content, source / name)
        for file, text in (beside or {}).items():
            (source / file).write_text(text)
        output = self.work / f"out{self.count}"
        command = [self.lorikeet, "adapters", "import", source / name, "--base", base, "--output", output, *options]
        return output, subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)

    def check(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for name, value in wanted.items():
            self.assertLess((found[name] - value).abs().max().item(), 1e-6 * value.abs().max().item() + 1e-12, name)

    def test_torchtunes_adapter_is_the_same_change_in_every_family(self):
        layers = factors(1)
        for model_type, turned, fused in (("llama", True, False), ("gemma2", True, False), ("qwen2", False, False), ("qwen3", False, False),
                                          ("phi3", False, True)):
            with self.subTest(model_type):
                output, done = self.import_(torchtune_tensors(layers, turned), model_type,
                                            beside={"adapter_config.json": json.dumps({"r": RANK, "lora_alpha": ALPHA})})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.check(change(output), expected(layers, fused))
        turned_wrongly = self.import_(torchtune_tensors(layers, False), "llama", f"--alpha={ALPHA}")[0]
        with self.assertRaises(AssertionError):
            self.check(change(turned_wrongly), expected(layers))

    def test_an_adapter_of_some_modules_and_in_bf16(self):
        layers = factors(2, ("q_proj", "v_proj", "up_proj"))
        output, done = self.import_(torchtune_tensors(layers, False, torch.bfloat16), "phi3", f"--alpha={ALPHA}")
        self.assertEqual(done.returncode, 0, done.stderr)
        rounded = {l: {n: (a.bfloat16(), b.bfloat16()) for n, (a, b) in m.items()} for l, m in layers.items()}
        self.check(change(output), expected(rounded, fused=True))

    def test_litgpts_adapter_is_the_same_change(self):
        for enabled in (("q_proj", "v_proj"), ("q_proj", "k_proj", "v_proj"), ("k_proj",)):
            layers = factors(3, (*enabled, "o_proj", "up_proj"))
            flags = "".join(f"lora_{word}: {str(name in enabled).lower()}\n"
                            for word, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")))
            for model_type, fused in (("llama", False), ("phi3", True)):
                with self.subTest((enabled, model_type)):
                    output, done = self.import_(litgpt_tensors(layers, enabled), model_type, name="lit_model.pth.lora",
                                                beside={"hyperparameters.yaml": f"lora_r: {RANK}\nlora_alpha: {ALPHA}\n{flags}"})
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.check(change(output), expected(layers, fused))

    def test_an_imported_adapter_is_shown(self):
        output, _ = self.import_(torchtune_tensors(factors(4), True), "llama", f"--alpha={ALPHA}")
        shown = subprocess.run([self.lorikeet, "adapters", "show", output], capture_output=True, text=True, check=False)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("model.layers.1.mlp.down_proj", shown.stdout)

    def test_what_cannot_be_imported_is_refused_and_nothing_is_written(self):
        tensors = torchtune_tensors(factors(5), True)
        whole = self.work / "whole.pt"
        torch.save(tensors, whole)
        damaged = whole.read_bytes()
        strange = {**tensors, "layers.0.attn.q_norm.scale": torch.ones(3)}
        without_b = {k: v for k, v in tensors.items() if k != "layers.1.mlp.w2.lora_b.weight"}
        views = {**tensors, "layers.0.attn.q_proj.lora_a.weight": tensors["layers.0.attn.q_proj.lora_a.weight"].t().contiguous().t()}
        nan = {**tensors, "layers.0.attn.q_proj.lora_a.weight": tensors["layers.0.attn.q_proj.lora_a.weight"] / 0}
        alpha = (f"--alpha={ALPHA}",)
        for content, model_type, options, says in (
                (tensors, "llama", (), "--alpha"), (tensors, "falcon", alpha, "got 'falcon'"), (tensors, "olmo2", alpha, "doesn't know the family olmo2"),
                (damaged[:-40], "llama", alpha, "zip"), (damaged[: len(damaged) // 2] + damaged[len(damaged) // 2 + 64:], "llama", alpha, "adapter_0.pt"),
                (b"\x80\x02}q\x00.", "llama", alpha, "zip archive"), (strange, "llama", alpha, "q_norm"), (without_b, "llama", alpha, "mlp.w2"),
                (views, "llama", alpha, "contiguous"), (nan, "llama", alpha, "lora_a"), ({"a": 1}, "llama", alpha, "no tensor"),
                (litgpt_tensors(factors(6), ("q_proj", "k_proj", "v_proj")), "llama", alpha, "hyperparameters.yaml")):
            with self.subTest(says):
                output, done = self.import_(content, model_type, *options)
                self.assertIn(done.returncode, (1, 2, 4), done.stderr)
                self.assertIn(says, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertFalse(output.exists())

    def test_nothing_of_a_pickle_is_run(self):
        class Trap:
            def __reduce__(self):
                return (os.system, (f"touch {marker}",))

        marker = self.work / "ran"
        output, done = self.import_({**torchtune_tensors(factors(7), True), "optimizer": Trap()}, "llama", f"--alpha={ALPHA}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((output / "adapter_model.safetensors").exists())
        self.assertFalse(marker.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
