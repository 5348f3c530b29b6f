"""Adapters on experts. transformers 5 holds the experts of a layer as stacked parameters; here, and in checkpoints, each has
modules of its own. So PEFT trains a model whose experts were taken apart into linear modules, and our adapter is read by
PEFT on the model as transformers loads it."""

import json

import live_test  # first: it skips where torch or PEFT is missing
import families
import reference
import tiny_llama
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

LIMIT = 1e-5
LOSS_LIMIT = NORM_LIMIT = 2e-5
UPDATE_LIMIT = 1e-4
NO_OP = 1e-2
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EXPERTS = ["gate_proj", "up_proj", "down_proj"]
STEPS, BATCH, LONGEST = 10, 4, 60
SETTINGS = ["lora.rank=4", "lora.alpha=8", "lora.dropout=0", "data.packing=true", f"batch.global={BATCH}", "training.epochs=1",
            "training.clip_grad_norm=1.0", "optimizer.lr=1e-3", "optimizer.weight_decay=0.01", "lr_scheduler.name=cosine",
            "lr_scheduler.warmup_steps=2"]


class Expert(torch.nn.Module):
    def __init__(self, gate_up, down, activation):
        super().__init__()
        self.activation = activation
        gate, up = gate_up.chunk(2)
        for name, weight in zip(EXPERTS, (gate, up, down), strict=True):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.weight = torch.nn.Parameter(weight.detach().clone())
            setattr(self, name, linear)

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Experts(torch.nn.ModuleList):
    """In place of transformers' module: every expert computes every token, and a weight of zero leaves it out."""

    def __init__(self, stacked):
        super().__init__(Expert(*pair, stacked.act_fn) for pair in zip(stacked.gate_up_proj, stacked.down_proj, strict=True))

    def forward(self, x, index, weights):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self):
            out = out + expert(x) * (weights * (index == number)).sum(-1, keepdim=True)
        return out


def taken_apart(base):
    model = reference.load(base)
    for layer in model.model.layers:
        block = layer if hasattr(layer, "experts") else layer.mlp  # Gemma 4's stand beside the MLP
        block.experts = Experts(block.experts)
    model.config.model_type = "taken_apart"  # or PEFT would take the modules' names for those of stacked parameters
    return model


def stack_of(tensors, name):
    """The matrices of a layer's experts as one tensor, of gate and up the rows of gate before those of up."""
    block, stack = name.rsplit(".", 1)
    modules = ["gate_proj", "up_proj"] if stack == "gate_up_proj" else [stack]
    count = len({key.removeprefix(block + ".").split(".")[0] for key in tensors if key.startswith(block + ".")})
    return torch.stack([torch.cat([tensors[f"{block}.{number}.{module}.weight"] for module in modules]) for number in range(count)])


class ExpertsParity(live_test.LiveTest):
    def prepare(self, family, variant):
        self.rows = tiny_llama.make_rows(STEPS * BATCH, longest=LONGEST)
        self.data = tiny_llama.write_rows(self.root / "rows.jsonl", self.rows)
        self.few = self.rows[:8]
        self.few_data = tiny_llama.write_rows(self.root / "few.jsonl", self.few)
        self.base = self.root / "base"
        families.make_checkpoint(self.base, family, variant, seed=1, vocab_size=320)
        tiny_llama.write_tokenizer(self.base)

    def train(self, run, *overrides):
        return self.programs.train(self.base, self.data, run, "precision.preset=fp32", *SETTINGS, *overrides)

    def make_start(self, targets):
        """An adapter on the model that was taken apart, with random B."""
        torch.manual_seed(3)
        model = get_peft_model(taken_apart(self.base), LoraConfig(r=4, lora_alpha=8, target_modules=list(targets),
                                                                  task_type="CAUSAL_LM"))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.add_(0.05 * torch.randn_like(parameter))
        reference.save(model, self.root / "start")
        return self.root / "start"

    def check_likelihoods(self, adapter, what, load=reference.load):
        """Ours against PEFT's on the model as transformers loads it, or as `load` does."""
        ours, _ = self.programs.token_nll(self.base, self.few_data, adapter)
        bare, _ = self.programs.token_nll(self.base, self.few_data)
        theirs = reference.token_nll(PeftModel.from_pretrained(load(self.base), adapter), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, what)
        self.beyond(reference.deviation(bare, theirs), NO_OP, f"{what}, without the adapter")
        return ours

    def check_training(self, family, variant, targets, load=reference.load):
        self.prepare(family, variant)
        start = self.make_start(targets)
        run, peft_run = self.root / "ours", self.root / "theirs"
        lines = self.train(run, f"lora.init={start}", f"lora.target_modules=[{', '.join(targets)}]")
        model = PeftModel.from_pretrained(taken_apart(self.base), start, is_trainable=True)
        theirs = reference.train(model, self.rows, peft_run)
        for index, (quantity, limit) in enumerate([("loss", LOSS_LIMIT), ("grad_norm", NORM_LIMIT)]):
            worst = max(abs(line[quantity] / step[index] - 1) for line, step in zip(lines, theirs, strict=True))
            self.below(worst, limit, f"{family}, {quantity}")
        self.below(reference.update_deviation(start, run, peft_run), UPDATE_LIMIT, f"{family}, update")
        ours = self.check_likelihoods(run, f"{family}, our adapter in PEFT", load)
        merged = self.programs.merge(self.base, run, self.root / "merged")
        theirs = reference.token_nll(reference.load(merged, dtype="auto"), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, f"{family}, merged, in transformers")

    def test_taking_experts_apart_changes_nothing(self):
        self.prepare("qwen3_moe", "normalized")
        whole, apart = reference.load(self.base), taken_apart(self.base)
        self.below(reference.deviation(*(reference.token_nll(model, self.few) for model in (apart, whole))), LIMIT, "taken apart")

    def test_adapters_on_attention_and_experts_train_as_peft_trains_them(self):
        self.check_training("qwen3_moe", "normalized", ATTENTION + EXPERTS)

    def test_adapters_on_experts_alone_train_as_peft_trains_them(self):
        self.check_training("olmoe", "plain", EXPERTS)

    def test_adapters_on_experts_and_the_mlp_beside_them_train_as_peft_trains_them(self):
        # On the model as transformers loads it PEFT passes over the experts'.
        self.check_training("gemma4_text", "experts", ATTENTION + EXPERTS, load=taken_apart)

    def test_an_adapter_on_mixtrals_experts_is_read_by_peft(self):
        self.prepare("mixtral", "window")
        run = self.root / "ours"
        self.train(run, "lora.target_modules=[q_proj, w1, w2, w3]")
        config = json.loads((run / "adapter_config.json").read_text())
        self.assertEqual(sorted(config["target_modules"]), ["q_proj", "w1", "w2", "w3"])
        self.check_likelihoods(run, "Mixtral, our adapter in PEFT")

    def test_files_that_stack_experts_are_the_same_base(self):
        self.prepare("qwen3_5_moe_text", "experts")
        alone = self.base
        stacked = self.stacked_copy(alone)
        targets = "lora.target_modules=[q_proj, gate_proj, up_proj, down_proj]"
        self.train(self.root / "of alone", targets)
        self.base = stacked
        self.train(self.root / "of stacked", targets)
        adapters = [load_file(self.root / name / "adapter_model.safetensors") for name in ("of alone", "of stacked")]
        self.assertTrue(any(".experts.4." in name for name in adapters[0]))
        self.assertEqual(adapters[0].keys(), adapters[1].keys())
        self.assertTrue(all(torch.equal(tensor, adapters[1][name]) for name, tensor in adapters[0].items()))
        run = self.root / "of stacked"
        ours, _ = self.programs.token_nll(stacked, self.few_data, run)  # PEFT doesn't read it
        merged = self.programs.merge(stacked, run, self.root / "merged")
        before, after = (load_file(folder / "model.safetensors") for folder in (stacked, merged))
        self.assertEqual({name: tensor.shape for name, tensor in before.items()}, {name: tensor.shape for name, tensor in after.items()})
        experts = [name for name in before if name.endswith((".gate_up_proj", "experts.down_proj"))]
        self.assertTrue(experts and not any(torch.equal(before[name], after[name]) for name in experts))
        theirs = reference.token_nll(reference.load(merged, dtype="auto"), self.few)
        self.below(reference.deviation(ours, theirs), LIMIT, "stacked and merged, in transformers")
        apart = load_file(self.programs.merge(alone, run, self.root / "merged alone") / "model.safetensors")
        for name in experts:
            self.assertTrue(torch.equal(after[name], stack_of(apart, name)), name)

    def stacked_copy(self, base):
        folder = self.root / "stacked"
        folder.mkdir()
        for path in base.iterdir():
            if path.suffix != ".safetensors":
                (folder / path.name).write_bytes(path.read_bytes())
        tensors = load_file(base / "model.safetensors")
        stacks = {name.split(".experts.")[0] + ".experts." + stack for name in tensors if ".experts." in name
                  for stack in ("gate_up_proj", "down_proj")}
        rest = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
        save_file(rest | {name: stack_of(tensors, name) for name in stacks}, folder / "model.safetensors", {"format": "pt"})
        return folder

    def test_all_linear_leaves_experts_out(self):
        self.prepare("qwen3_moe", "normalized")
        run = self.root / "ours"
        self.train(run, "lora.target_modules=all-linear")
        config = json.loads((run / "adapter_config.json").read_text())
        self.assertEqual(sorted(config["target_modules"]), sorted(ATTENTION))


if __name__ == "__main__":
    live_test.main()
