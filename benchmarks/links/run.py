"""Replicate and shard over links of different speed: two hosts (network namespaces joined by a veth pair, limited by
tc's token bucket), one rank a host, one core a rank; a 57M Llama, LoRA rank 16, 32 examples a step, bf16. Runs of all
strategies and rates in turn; a step's time is the median after the first step. Needs root.

    .venv/bin/python benchmarks/links/run.py build/release/apps [--repeats 2] [--steps 4] [--predict PROGRAM]

--predict is build/release/benchmarks/links/predict_step (configure with -DLORIKEET_BENCHMARKS=ON): lib/plan's formula,
calibrated with the runs at 1 Gbit/s, beside the means of all others.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "recipes"), str(ROOT / "benchmarks" / "training")]
import network
from model_57m import make_model

LENGTH, ROWS, MICRO_TOKENS = 128, 32, 1024
RATES = (None, 1.0, 0.1)  # Gbit/s
PORT = 29555


def make_data(path, steps):
    draw = random.Random(0)
    with path.open("w") as out:
        for _ in range(ROWS * steps):
            ids = [draw.randrange(32000) for _ in range(LENGTH)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def metrics(output):
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


class Bench:
    def __init__(self, programs, work, steps):
        self.programs = programs
        self.work = work
        self.steps = steps
        self.runs = 0

    def config(self, strategy):
        self.runs += 1
        path = self.work / f"config{self.runs}.yaml"
        path.write_text(
            f"model: {{ path: {self.work / 'model'} }}\n"
            f"data: {{ train: {{ path: {self.work / 'rows.jsonl'}, format: tokens }}, cache_dir: {self.work / 'cache'} }}\n"
            f"batch: {{ global: {ROWS}, micro_tokens: {MICRO_TOKENS} }}\noptimizer: {{ lr: 1e-4 }}\n"
            f"distributed: {{ strategy: {strategy} }}\ntraining: {{ max_steps: {self.steps} }}\ndevice: cpu\n"
            f"checkpoint: {{ output_dir: {self.work / f'run{self.runs}'}, save_every_epochs: null, save_every_steps: 1000 }}\n"
        )
        return path, self.work / f"run{self.runs}"

    def alone(self):
        config, output = self.config("auto")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
        command = ["taskset", "-c", "0", str(self.programs / "lora_finetune_distributed"), "--config", str(config)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=environment)
        return metrics(output)

    def pair(self, hosts, strategy, rate):
        hosts.limit(rate)
        config, output = self.config(strategy)
        before = [hosts.sent_bytes(host) for host in (0, 1)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000", "WORLD_SIZE": "2",
                       "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": network.ADDRESSES[0],
                       "MASTER_PORT": str(PORT)}  # as torchrun sets them
        nodes = []
        for host in (0, 1):
            command = ["taskset", "-c", str(host), str(self.programs / "lora_finetune_distributed"), "--config", str(config)]
            nodes.append(subprocess.Popen(hosts.on(host, command), stderr=subprocess.PIPE, text=True,
                                          env={**environment, "RANK": str(host)}))
        said = [node.communicate(timeout=900)[1] for node in nodes]
        for node, text in zip(nodes, said):
            if node.returncode != 0:
                raise SystemExit(text)
        counted = [hosts.sent_bytes(host) - b for host, b in zip((0, 1), before)]
        lines = metrics(output)
        return {"strategy": strategy, "gigabits": rate, "lines": lines, "kernel_bytes": counted,
                "own_bytes": sum(line["comm_bytes"] for line in lines)}


class Formula:
    """lib/plan's step time of this job; what a device computes a second and what copying a byte costs it are free."""

    JOB = {"layers": 8, "hidden_size": 512, "heads": 8, "head_dim": 64, "vocab_size": 32000,
           "layer_linear_parameters": 8 * 2949120, "storage_bytes": 2, "adapter_parameters": 1196032,
           "tokens": ROWS * LENGTH, "label_tokens": ROWS * (LENGTH - 1), "squared_lengths": ROWS * LENGTH**2,
           "world_size": 2, "turns": 2, "latency_seconds": 0}
    PAYLOAD_SHARE = 1448 / 1514  # of an Ethernet frame

    def __init__(self, program, measured):
        self.program = program
        self.device_flops, self.seconds_per_byte = 1e11, 0.0
        # Replicate sends so little that its time tells the device's rate, then shard's tells the copying.
        for _ in range(4):
            self.device_flops *= self.seconds("replicate", 1.0) / measured["replicate", 1.0]
            low, high = 0.0, 1e-6
            for _ in range(40):
                self.seconds_per_byte = (low + high) / 2
                low, high = ((self.seconds_per_byte, high) if self.seconds("shard", 1.0) < measured["shard", 1.0]
                             else (low, self.seconds_per_byte))

    def seconds(self, strategy, gigabits):
        link = (gigabits or 1000) * 1e9 / 8 * self.PAYLOAD_SHARE
        job = {**self.JOB, "degree": 2 if strategy == "shard" else 1, "device_flops": self.device_flops,
               "seconds_per_byte": self.seconds_per_byte, "reduce_bytes_per_second": link, "gather_bytes_per_second": link}
        said = subprocess.run([self.program], input=json.dumps(job) + "\n", capture_output=True, text=True, check=True)
        return json.loads(said.stdout)["total"]


def compare(program, times):
    means = {key: statistics.mean(found) for key, found in times.items()}
    formula = Formula(program, means)
    print(f"calibrated: {formula.device_flops:.3g} operations/s, {formula.seconds_per_byte:.2g} s a byte")
    for (strategy, gigabits), measured in means.items():
        said = formula.seconds(strategy, gigabits)
        print(f"{strategy}, {gigabits or 'no'} Gbit/s limit: measured {measured:.2f} s, formula {said:.2f} s "
              f"({said / measured - 1:+.0%})" + (", calibrated here" if gigabits == 1.0 else ""))


def step_seconds(lines):
    return statistics.median(line["step_seconds"] for line in lines[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--predict", type=pathlib.Path)
    args = parser.parse_args()
    times = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        make_model(work / "model")
        make_data(work / "rows.jsonl", args.steps)
        bench = Bench(args.programs, work, args.steps)
        try:
            with network.TwoHosts() as hosts:
                for _ in range(args.repeats):
                    one = bench.alone()
                    print(json.dumps({"strategy": "one", "step_seconds": step_seconds(one)}), flush=True)
                    for strategy in ("replicate", "shard"):
                        for rate in RATES:
                            found = bench.pair(hosts, strategy, rate)
                            lines = found.pop("lines")
                            found["step_seconds"] = step_seconds(lines)
                            times[strategy, rate].append(found["step_seconds"])
                            found["comm_seconds"] = statistics.median(line["comm_seconds"] for line in lines[1:])
                            found["bytes_a_step"] = lines[-1]["comm_bytes"]
                            found["loss_difference"] = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(lines, one))
                            print(json.dumps(found), flush=True)
        except OSError as error:
            raise SystemExit(f"skipped: {error}") from error
    if args.predict:
        compare(args.predict, times)


if __name__ == "__main__":
    main()
