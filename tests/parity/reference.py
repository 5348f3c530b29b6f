"""What transformers and PEFT compute: the other side of every comparison here.

Rows go through the model one by one without padding, so that neither packing nor a padding mask can be wrong on
this side.
"""

import json

import torch
from families import auto_class
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file
from transformers import AutoConfig, get_cosine_schedule_with_warmup

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def load(folder, dtype=torch.float32, rope=None):
    """The checkpoint as transformers reads it; `rope` replaces entries of its rope_parameters."""
    config = AutoConfig.from_pretrained(folder)
    if rope is not None:
        config.rope_parameters = dict(config.rope_parameters) | rope
    return auto_class(config).from_pretrained(folder, config=config, dtype=dtype, **attention(config)).eval()


def attention(config):
    """Arguments of from_pretrained: only eager attention has soft caps."""
    return {"attn_implementation": "eager"} if getattr(config, "attn_logit_softcapping", None) else {}


def row_nll(model, row, causal=True):
    """Negative log-likelihood of each label token of one row, fp32 [labels]."""
    ids = torch.tensor([row["input_ids"]])
    labels = torch.tensor(row["labels"])[1:]
    mask = None if causal else torch.zeros(1, 1, ids.shape[1], ids.shape[1], dtype=model.dtype)
    logits = model(input_ids=ids, attention_mask=mask).logits[0, :-1].float()
    kept = labels != -100
    return torch.nn.functional.cross_entropy(logits[kept], labels[kept], reduction="none")


@torch.no_grad()
def token_nll(model, rows, causal=True):
    return [row_nll(model, row, causal).tolist() for row in rows]


def deviation(ours, theirs):
    """Largest difference of a token's value, relative to the mean of theirs."""
    assert [len(row) for row in ours] == [len(row) for row in theirs], "not the same label tokens"
    a, b = (torch.tensor([value for row in rows for value in row], dtype=torch.float64) for rows in (ours, theirs))
    return ((a - b).abs().max() / b.abs().mean()).item()


def make_adapter(base, folder, targets=LINEARS, rank=4, alpha=8, seed=3, **more):
    """Saves a PEFT adapter whose B is random too, so that it acts from the first step on; `more` goes to LoraConfig."""
    torch.manual_seed(seed)
    targets = targets if isinstance(targets, str) else list(targets)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM", **more)
    model = get_peft_model(load(base), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name or "modules_to_save" in name:
                parameter.add_(0.05 * torch.randn_like(parameter))
            if "lora_magnitude" in name:  # away from the norms of the weights too
                parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
    save(model, folder)
    return folder


def save(model, folder):
    """Without the base's weight of a head that has an adapter, which PEFT would save too."""
    model.save_pretrained(folder, save_embedding_layers=False)


def fresh_adapter(base, folder, rank=4, alpha=8, **more):
    """A trainable PEFT model as it starts, which is saved in `folder` for PEFT's conversion to a plain adapter."""
    model = get_peft_model(load(base), LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(LINEARS),
                                                  task_type="CAUSAL_LM", **more))
    kept = model.peft_config["default"].init_lora_weights
    model.peft_config["default"].init_lora_weights = True  # PEFT's documentation: or it would be applied again
    model.save_pretrained(folder)
    model.peft_config["default"].init_lora_weights = kept
    return model


def products(folder):
    """B A of every module of a saved adapter, multiplied by its scale."""
    tensors = {name: tensor.double() for name, tensor in adapter_tensors(folder).items()}
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    return {name: scale * tensors[name.replace("lora_A", "lora_B")] @ a for name, a in tensors.items() if "lora_A" in name}


def product_deviation(ours, theirs):
    ours, theirs = products(ours), products(theirs)
    assert ours.keys() == theirs.keys()
    return (sum((ours[n] - theirs[n]).square().sum() for n in ours) / sum(theirs[n].square().sum() for n in ours)).sqrt().item()


def with_adapter(base, folder, trainable=False, dtype=torch.float32, rope=None):
    return PeftModel.from_pretrained(load(base, dtype, rope), folder, is_trainable=trainable)


def train(model, rows, output, bf16=False, lr=1e-3, batch=4, warmup_steps=2, causal=True, loraplus_lr_ratio=None,
          freeze_a=False):
    """A plain PEFT loop over `rows` in order; returns (loss, gradient norm before clipping) of each step.

    bf16 runs the forward under CPU autocast. A step's loss is the sum over its label tokens by their count.
    """
    for name, parameter in model.named_parameters():
        # Of an embedding's factors lora_embedding_B is the one that is drawn, as lora_A is of a linear module's.
        if freeze_a and ("lora_A" in name or "lora_embedding_B" in name):
            parameter.requires_grad_(False)
    parameters = [p for p in model.parameters() if p.requires_grad]
    options = dict(lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    if loraplus_lr_ratio is None:
        optimizer = torch.optim.AdamW(parameters, **options)
    else:
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, loraplus_lr_ratio=loraplus_lr_ratio,
                                              loraplus_weight_decay=0.01, loraplus_lr_embedding=lr, **options)
    steps = len(rows) // batch
    schedule = get_cosine_schedule_with_warmup(optimizer, warmup_steps, steps)
    history = []
    for step in range(steps):
        taken = rows[step * batch:(step + 1) * batch]
        count = sum(label != -100 for row in taken for label in row["labels"][1:])
        total = 0.0
        for row in taken:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = row_nll(model, row, causal).sum() / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        history.append((total, norm.item()))
    save(model, output)
    return history


def adapter_tensors(folder):
    """Without the base's own tables, which PEFT writes beside an adapter of the embedding or the head."""
    tensors = load_file(folder / "adapter_model.safetensors")
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(".base_layer.weight")}


def update_deviation(initial, ours, theirs):
    """Norm of the difference of two updates (final minus initial values of all tensors) relative to theirs."""
    first, a, b = adapter_tensors(initial), adapter_tensors(ours), adapter_tensors(theirs)
    assert first.keys() == a.keys() == b.keys(), "the adapters hold different tensors"
    names = sorted(first)
    difference = torch.cat([(a[n] - b[n]).double().flatten() for n in names])
    update = torch.cat([(b[n] - first[n]).double().flatten() for n in names])
    return (difference.norm() / update.norm()).item()
