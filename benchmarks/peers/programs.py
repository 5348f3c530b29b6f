"""The programs that are compared: the settings that each is tried with, its command line, and what it writes a step."""

import csv
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / "build" / "peers"


class Program:
    """One program. A setting is a dict; `choices` are tried first, then each of `extras` added to the best of them."""

    environment = "peft"

    def __init__(self, job):
        self.job, self.layout, self.cpu = job, job.layout, job.device == "cpu"

    def python(self):
        return ENVIRONMENTS / self.environment / "bin" / "python"

    def runs_layout(self):
        return True

    def choices(self):
        return [{"dtype": "fp32"}] * self.cpu + [{"dtype": "bf16"}]

    def extras(self):
        return [{"compile": True}] if self.layout.same_shape and self.job.compile else []

    def command(self, setting, out):
        """The command line of a run that writes into the folder `out`."""
        raise NotImplementedError

    def steps(self, out):
        """[{"loss", "seconds" or None}] of the steps that a run has done so far."""
        return complete_lines(out / "steps.jsonl")


def complete_lines(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def flags(setting):
    return [word for key, value in setting.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]


class Lorikeet(Program):
    name = "Lorikeet"

    def __init__(self, job, program):
        super().__init__(job)
        self.program = program

    def extras(self):
        return []

    def command(self, setting, out):
        job = self.job
        (out / "config.yaml").write_text(
            f"model: {{ path: {job.checkpoint} }}\nlora: {{ rank: {job.rank}, alpha: {job.alpha} }}\n"
            f"data: {{ train: {{ path: {job.rows}, format: tokens }}, max_seq_len: {self.layout.length}, shuffle: false,"
            f" cache_dir: {out / 'cache'} }}\n"
            f"batch: {{ global: {self.layout.step_rows}, micro_tokens: {self.layout.length * self.layout.packs} }}\n"
            f"optimizer: {{ lr: {job.lr} }}\nlr_scheduler: {{ name: constant, warmup_ratio: null, warmup_steps: 0 }}\n"
            f"training: {{ max_steps: {job.steps} }}\nprecision: {{ preset: {setting['dtype']} }}\ndevice: {job.device}\n"
            f"checkpoint: {{ output_dir: {out / 'run'} }}\n", encoding="utf-8")
        return [self.program, "--config", out / "config.yaml"]

    def steps(self, out):
        return [{"loss": line["loss"], "seconds": line["step_seconds"]}
                for line in complete_lines(out / "run" / "metrics.jsonl")]


class PeftLoop(Program):
    name = "PEFT, plain loop"

    def choices(self):
        return super().choices() + [{"dtype": "bf16-plain"}]

    def extras(self):
        return super().extras() + [{"flat": True}] * self.layout.packed

    def command(self, setting, out):
        return [self.python(), HERE / "peft_loop.py", out / "job.json", out / "steps.jsonl", *flags(setting)]


class HfTrainer(Program):
    name = "Trainer + PEFT"

    def command(self, setting, out):
        return [self.python(), HERE / "hf_trainer.py", out / "job.json", out / "steps.jsonl", *flags(setting)]


class Torchtune(Program):
    """torchtune's recipe by its own command. Its adapter and optimizer have the dtype of the base."""

    name, environment = "torchtune recipe", "torchtune"
    losses = {False: "torchtune.modules.loss.CEWithChunkedOutputLoss", True: "torch.nn.CrossEntropyLoss"}

    def runs_layout(self):
        return self.job.config["model_type"] == "llama"

    def choices(self):
        return [{**setting, "whole-loss": whole} for setting in super().choices() for whole in (False, True)]

    def command(self, setting, out):
        job, config = self.job, self.job.config
        files = sorted(path.name for path in job.checkpoint.glob("*.safetensors"))
        recipe = {
            "output_dir": str(out / "run"),
            "model": {
                "_component_": "torchtune.models.llama3_2.lora_llama3_2", "lora_rank": job.rank, "lora_alpha": job.alpha,
                "lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True,
                "lora_dropout": 0.0, "vocab_size": config["vocab_size"], "num_layers": config["num_hidden_layers"],
                "num_heads": config["num_attention_heads"], "num_kv_heads": config["num_key_value_heads"],
                "embed_dim": config["hidden_size"], "intermediate_dim": config["intermediate_size"],
                "max_seq_len": max(2048, self.layout.length), "norm_eps": config["rms_norm_eps"],
                "rope_base": int(config["rope_theta"]), "scale_factor": 1,
                "tie_word_embeddings": config["tie_word_embeddings"]},
            "tokenizer": {"_component_": "torchtune_rows.NoTokenizer"},
            "checkpointer": {
                "_component_": "torchtune.training.FullModelHFCheckpointer", "checkpoint_dir": str(job.checkpoint),
                "checkpoint_files": files, "recipe_checkpoint": None, "output_dir": str(out / "run"),
                "model_type": "LLAMA3_2"},
            "resume_from_checkpoint": False, "save_adapter_weights_only": True,
            "dataset": {"_component_": "torchtune_rows.rows_dataset", "path": str(job.rows), "packed": self.layout.packed,
                        "length": self.layout.length},
            "seed": 0, "shuffle": False, "batch_size": self.layout.packs * (1 if self.layout.packed else self.layout.rows),
            "optimizer": {"_component_": "torch.optim.AdamW", "fused": True, "weight_decay": 0.01, "lr": job.lr},
            "lr_scheduler": {"_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
                             "num_warmup_steps": 0},
            "loss": {"_component_": self.losses[setting["whole-loss"]]},
            "epochs": 1, "max_steps_per_epoch": None, "gradient_accumulation_steps": self.layout.accumulate,
            "clip_grad_norm": 1.0, "compile": setting.get("compile", False),
            "metric_logger": {"_component_": "torchtune_rows.StepLogger", "path": str(out / "steps.jsonl")},
            "log_every_n_steps": 1, "device": job.device, "dtype": setting["dtype"],
            "enable_activation_checkpointing": False, "enable_activation_offloading": False}
        (out / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")  # JSON is YAML
        return [self.python().with_name("tune"), "run", "lora_finetune_single_device", "--config", out / "recipe.yaml"]


class Litgpt(Program):
    """litgpt's own command. It has no packing and no clipping, and its warm-up is at least one step long."""

    name, environment = "litgpt finetune_lora", "litgpt"

    def runs_layout(self):
        return not self.layout.packed

    def choices(self):
        return [{"precision": one} for one in ["32-true"] * self.cpu + ["bf16-true", "bf16-mixed"]]

    def extras(self):
        return []

    def command(self, setting, out):
        job, rows = self.job, self.layout.micro_rows
        lora = [f"--lora_{name}=true" for name in ("query", "key", "value", "projection", "mlp")]
        return [self.python().with_name("litgpt"), "finetune_lora", job.litgpt_checkpoint, "--out_dir", out / "run",
                *flags(setting), "--devices", "1", "--lora_r", job.rank, "--lora_alpha", job.alpha, "--lora_dropout", "0",
                *lora, "--data", "litgpt_rows.Rows", "--data.path", job.rows, "--train.global_batch_size",
                rows * self.layout.accumulate, "--train.micro_batch_size", rows, "--train.max_steps", job.steps,
                "--train.epochs", "2", "--train.lr_warmup_steps", "1", "--eval.interval", "100000",
                "--optimizer", json.dumps({"class_path": "torch.optim.AdamW",
                                           "init_args": {"lr": job.lr, "weight_decay": 0.01}})]

    def steps(self, out):
        found = sorted((out / "run" / "logs").glob("**/metrics.csv"))
        if not found:
            return []
        text = found[0].read_text(encoding="utf-8")
        rows = [row for row in csv.DictReader(text[:text.rfind("\n") + 1].splitlines()) if row.get("loss")]
        each = self.layout.accumulate
        micro = [(float(row["loss"]), float(row["iter_time"])) for row in rows if row.get("iter_time")]
        return [{"loss": micro[end - 1][0], "seconds": sum(seconds for _, seconds in micro[end - each:end])}
                for end in range(each, len(micro) + 1, each)]


def programs(job, lorikeet):
    """Those that can run the job's layout, Lorikeet first."""
    every = [Lorikeet(job, lorikeet), PeftLoop(job), HfTrainer(job), Torchtune(job), Litgpt(job)]
    return [program for program in every if program.runs_layout()]


def variables(job, base):
    """The environment of the peers' processes."""
    return {**base, "PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "TORCHINDUCTOR_CACHE_DIR": str(job.work / "inductor"), "PYTHONUNBUFFERED": "1"}
