"""Several processes compute what one computes, and none is left over when one fails."""

import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest

import harness

ENVIRONMENT = {**harness.ENVIRONMENT, "OMP_NUM_THREADS": "1"}
# fp32 and two threads at most: what differs is the order of sums alone.
FP32 = "precision.preset=fp32"
KILLS = int(os.environ.get("LORIKEET_TEST_KILLS", "6"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Distributed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.single = cls.programs.work / "single"
        result = cls.run_command(cls.programs.command(cls.single, FP32))
        assert result.returncode == 0, result.stderr

    @staticmethod
    def run_command(command, timeout=180, env=None):
        return subprocess.run(command, env=env or ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)

    def command(self, processes, output, *overrides):
        return [str(self.programs.folder / "lorikeet"), "run", "--nproc", str(processes), "lora_finetune_distributed",
                "--config", str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", FP32, *overrides]

    def start(self, processes, output, *overrides):
        return subprocess.Popen(self.command(processes, output, *overrides), env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def ranks(self, launcher):
        """Process ids of the launcher's ranks, by rank."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if int(re.search(r"\) \S (\d+)", (entry / "stat").read_text()).group(1)) != launcher.pid:
                    continue
                variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                found[int(variables["LORIKEET_RANK"])] = int(entry.name)
            except (OSError, KeyError, AttributeError, ValueError):
                continue
        return found

    def steps_done(self, output):
        path = pathlib.Path(output) / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def losses(self, output):
        return [line["loss"] for line in harness.metrics(output)]

    def assert_same_losses(self, output):
        found, expected = self.losses(output), self.losses(self.single)
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLess(abs(a - b) / abs(b), 3e-6)

    def test_one_process_is_the_single_device_run_to_the_bit(self):
        output = self.programs.work / "one"
        result = self.run_command(self.command(1, output))
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            self.assertEqual((output / name).read_bytes(), (self.single / name).read_bytes())
        self.assertEqual(harness.metrics(output), harness.metrics(self.single))
        lines = (output / "metrics.jsonl").read_text().splitlines()
        self.assertTrue(all(json.loads(line)["comm_seconds"] == 0 for line in lines))

    def test_two_to_four_processes_give_the_losses_of_one(self):
        for processes in (2, 3, 4):
            output = self.programs.work / f"of{processes}"
            result = self.run_command(self.command(processes, output, "distributed.verify=true"))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assert_same_losses(output)
            self.assertEqual(json.loads((output / "run.json").read_text())["world_size"], processes)
            # Every line but the first rank's own has its rank in front, and the others keep silent.
            self.assertNotIn("[rank 1]", result.stderr)

    def test_weights_in_parts_give_the_same_losses(self):
        for processes, strategy, name in ((2, ["shard"], "shard"), (3, ["shard"], "shard"), (4, ["hybrid", "2"], "hybrid"),
                                          (2, ["hybrid"], "shard"), (2, ["auto"], "replicate")):
            output = self.programs.work / f"{'_'.join(strategy)}{processes}"
            overrides = [f"distributed.strategy={strategy[0]}", *(f"distributed.shard_degree={d}" for d in strategy[1:])]
            result = self.run_command(self.command(processes, output, "distributed.verify=true", *overrides))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"strategy: {name}, ", result.stderr)
            self.assertEqual(json.loads((output / "run.json").read_text())["strategy"], name)
            self.assert_same_losses(output)

    def test_a_run_goes_on_with_another_strategy(self):
        output = self.programs.work / "changed"
        for processes, strategy, steps in ((2, "shard", 4), (3, "replicate", 8)):
            launcher = self.start(processes, output, f"distributed.strategy={strategy}")
            self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= steps, 120))
            launcher.send_signal(signal.SIGTERM)
            _, said = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 130, said)
        result = self.run_command(self.command(4, output, "distributed.strategy=hybrid", "distributed.shard_degree=2"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same_losses(output)

    def test_strategies_that_can_t_be_are_refused(self):
        for overrides, said in ((["strategy=hybrid", "shard_degree=2"], "2 doesn't divide the 3 ranks of this node"),
                                (["strategy=shard", "shard_degree=3"], "is for distributed.strategy=hybrid alone")):
            command = self.command(3, self.programs.work / "refused", *(f"distributed.{o}" for o in overrides))
            result = self.run_command(command, 60)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)

    def test_a_finished_run_says_so_on_every_rank(self):
        output = self.programs.work / "finished"
        for said in ("the adapter lies in", *["this run is finished already"] * 3):
            result = self.run_command(self.command(3, output))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(said, result.stderr)
            self.assertNotIn("[rank", result.stderr)

    def test_nothing_listens_beyond_this_machine_and_nothing_stays(self):
        output = self.programs.work / "listen"
        launcher = self.start(2, output, "training.max_steps=60")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 2))
        ranks = set(self.ranks(launcher).values()) | {launcher.pid}
        listeners = 0
        for family in ("tcp", "tcp6"):
            sockets = {os.readlink(fd) for pid in ranks for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
            for line in pathlib.Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    listeners += 1
                    self.assertIn(fields[1].split(":")[0], ("0100007F", "00000000000000000000000001000000"), line)
        self.assertGreater(listeners, 0)
        launcher.send_signal(signal.SIGTERM)
        self.assertEqual(launcher.wait(timeout=60), 130, launcher.stderr.read())
        launcher.stderr.close()
        for pid in ranks:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
        steps = self.steps_done(output)
        self.assertTrue((output / "checkpoints" / f"step_{steps}").is_dir())

    def test_a_killed_rank_ends_the_run_in_ten_seconds_and_it_resumes_as_if_nothing_had_happened(self):
        output = self.programs.work / "killed"
        for victim, at_step in ((1, 4), (0, 8)):
            launcher = self.start(3, output)
            self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= at_step, 120))
            ranks = self.ranks(launcher)
            os.kill(ranks[victim], signal.SIGKILL)
            begin = time.monotonic()
            _, said = launcher.communicate(timeout=60)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertEqual(launcher.returncode, 1, said)
            self.assertIn(f"rank {victim} was killed by signal 9", said)
            self.assertIn("in phase 'training'", said)
            for pid in ranks.values():
                self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
        # Any number of processes goes on.
        result = self.run_command(self.command(2, output))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same_losses(output)

    def test_a_killed_rank_ends_a_run_with_weights_in_parts(self):
        output = self.programs.work / "killed_shard"
        launcher = self.start(3, output, "distributed.strategy=shard")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 3, 120))
        ranks = self.ranks(launcher)
        os.kill(ranks[2], signal.SIGKILL)
        begin = time.monotonic()
        _, said = launcher.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(launcher.returncode, 1, said)
        self.assertIn("rank 2 was killed by signal 9", said)
        for pid in ranks.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_a_rank_without_memory_is_named(self):
        output = self.programs.work / "memory"
        launcher = self.start(2, output, "training.max_steps=500")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 2, 120))
        # Whatever it asks the kernel for from now on it doesn't get.
        resource.prlimit(self.ranks(launcher)[1], resource.RLIMIT_AS, (1 << 20, 1 << 20))
        _, said = launcher.communicate(timeout=60)
        self.assertEqual(launcher.returncode, 1, said)
        self.assertRegex(said, r"rank 1 ended with exit code 1 in phase 'training': out of memory")

    def test_a_run_that_is_killed_at_any_moment_goes_on_as_if_nothing_had_happened(self):
        output = self.programs.work / "anywhere"
        moments = random.Random(3)
        save_always = "checkpoint.save_every_steps=1"
        begin = time.monotonic()
        result = self.run_command(self.command(2, self.programs.work / "timed", save_always))
        whole = time.monotonic() - begin
        self.assertEqual(result.returncode, 0, result.stderr)
        # At start-up as soon as a rank exists; then from reading to writing checkpoints, wherever it happens to be.
        phases = set()
        for kill in range(KILLS):
            launcher = self.start(2, output, save_always)
            self.assertTrue(harness.wait_for(lambda: len(self.ranks(launcher)) == 2 or launcher.poll() is not None))
            if kill > 0:
                harness.wait_for(lambda: launcher.poll() is not None, moments.uniform(0, whole))
            ranks = self.ranks(launcher)
            if len(ranks) == 2:
                os.kill(ranks[moments.randrange(2)], signal.SIGKILL)
            begin = time.monotonic()
            _, said = launcher.communicate(timeout=60)
            self.assertLess(time.monotonic() - begin, 10)
            phases.update(re.findall(r"was killed by signal 9 .* in phase '([a-z ]+)'", said))
            for pid in ranks.values():
                self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
            if launcher.returncode == 0:
                break
        print(f"killed in: {', '.join(sorted(phases))}", file=sys.stderr)
        result = self.run_command(self.command(2, output, save_always))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same_losses(output)

    def test_a_rank_that_hangs_is_found_and_named(self):
        for strategy in ("replicate", "shard"):
            with self.subTest(strategy=strategy):
                self.hang(strategy)

    def hang(self, strategy):
        output = self.programs.work / f"hung_{strategy}"
        launcher = self.start(2, output, "distributed.watchdog_seconds=3", "training.max_steps=500",
                              f"distributed.strategy={strategy}")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 2, 120))
        ranks = self.ranks(launcher)
        os.kill(ranks[1], signal.SIGSTOP)
        _, said = launcher.communicate(timeout=60)
        self.assertEqual(launcher.returncode, 1, said)
        self.assertIn("rank 0 has waited", said)
        self.assertRegex(said, r"rank 0: training, in all-(reduce|gather) \d+")
        self.assertRegex(said, r"rank 1: training, (in|behind) all-(reduce|gather) \d+")
        for pid in ranks.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_a_rank_s_own_error_is_the_run_s(self):
        result = self.run_command(self.command(3, self.programs.work / "bad", "lora.target_modules=[nothing]"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("'nothing' matches no linear module", result.stderr)

    def test_processes_that_torchrun_starts_find_each_other(self):
        output = self.programs.work / "torchrun"
        program = [str(self.programs.folder / "lora_finetune_distributed"), *self.command(1, output)[5:]]
        group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        ranks = [subprocess.Popen(program, env={**ENVIRONMENT, **group, "RANK": str(r), "LOCAL_RANK": str(r)},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for r in range(2)]
        for rank in ranks:
            _, said = rank.communicate(timeout=120)
            self.assertEqual(rank.returncode, 0, said)
        self.assert_same_losses(output)

    def test_half_set_variables_and_wrong_numbers_are_refused_at_once(self):
        program = [str(self.programs.folder / "lora_finetune_distributed"), *self.command(1, self.programs.work / "half")[5:]]
        result = self.run_command(program, 20, {**ENVIRONMENT, "RANK": "0"})
        self.assertEqual(result.returncode, 2)
        self.assertIn("WORLD_SIZE is not set", result.stderr)
        for processes in ("0", "x", "-1"):
            self.assertEqual(self.run_command(self.command(processes, "nowhere"), 20).returncode, 2)
        single = [word.replace("_distributed", "_single_device") for word in self.command(2, "nowhere")]
        result = self.run_command(single, 20)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--nproc 2 needs the recipe lora_finetune_distributed", result.stderr)

    def test_ranks_with_different_settings_are_told_which(self):
        output = self.programs.work / "different"
        base = {**ENVIRONMENT, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        program = [str(self.programs.folder / "lora_finetune_distributed"), *self.command(1, output)[5:]]
        first = subprocess.Popen(program, env={**base, "RANK": "0", "LOCAL_RANK": "0"}, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (first.kill(), first.wait()))
        result = self.run_command([*program, "optimizer.lr=1e-5"], 60, {**base, "RANK": "1", "LOCAL_RANK": "1"})
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("optimizer.lr differs between ranks: '0.002' on rank 0, '1.0e-5' on rank 1", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
