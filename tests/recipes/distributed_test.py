"""Several processes compute what one computes, and none is left over when one fails."""

import json
import os
import pathlib
import re
import resource
import shutil
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
        cls.base_fingerprint = json.loads((cls.single / "run.json").read_text())["identity"]["model"]

    @staticmethod
    def run_command(command, timeout=180, env=None):
        return subprocess.run(command, env=env or ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)

    def command(self, processes, output, *overrides):
        return [str(self.programs.folder / "lorikeet"), "run", "--nproc", str(processes), "lora_finetune_distributed",
                "--config", str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", FP32, *overrides]

    def start(self, processes, output, *overrides):
        return subprocess.Popen(self.command(processes, output, *overrides), env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def ranks(self, launcher, variable="LORIKEET_RANK"):
        """Process ids of the launcher's ranks, by rank, which the variable gives."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if int(re.search(r"\) \S (\d+)", (entry / "stat").read_text()).group(1)) != launcher.pid:
                    continue
                variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
                found[int(variables[variable])] = int(entry.name)
            except (OSError, KeyError, AttributeError, ValueError):
                continue
        return found

    @staticmethod
    def steps_done(output):
        path = pathlib.Path(output) / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def losses(self, output):
        return [line["loss"] for line in harness.metrics(output)]

    def assert_same_losses(self, output, single=None):
        found, expected = self.losses(output), self.losses(single or self.single)
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

    def test_quantised_weights_in_parts_give_the_same_losses(self):
        for storage in ("nf4", "fp8"):
            overrides = (f"precision.base_storage={storage}", "training.max_steps=6")
            single, parts = self.programs.work / f"single_{storage}", self.programs.work / f"shard_{storage}"
            for command in (self.programs.command(single, FP32, *overrides),
                            self.command(2, parts, "distributed.verify=true", "distributed.strategy=shard", *overrides)):
                result = self.run_command(command)
                self.assertEqual(result.returncode, 0, result.stderr)
            self.assert_same_losses(parts, single)
            self.assertNotEqual(self.losses(single)[0], self.losses(self.single)[0])

    def test_weights_in_parts_give_the_same_losses(self):
        for processes, strategy, name in ((2, ["shard"], "shard"), (3, ["shard"], "shard"), (4, ["hybrid", "2"], "hybrid"),
                                          (2, ["hybrid"], "shard"), (2, ["auto"], "replicate")):
            output = self.programs.work / f"{'_'.join(strategy)}{processes}"
            overrides = [f"distributed.strategy={strategy[0]}", *(f"distributed.shard_degree={d}" for d in strategy[1:])]
            result = self.run_command(self.command(processes, output, "distributed.verify=true", *overrides))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"strategy: {name}, ", result.stderr)
            record = json.loads((output / "run.json").read_text())
            self.assertEqual(record["strategy"], name)
            # Each rank has hashed the part that it read.
            self.assertEqual(record["identity"]["model"], self.base_fingerprint)
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
        offload = self.command(3, self.programs.work / "refused", "distributed.strategy=shard", "training.offload=weights")
        result = self.run_command(offload, 60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("[training.offload] weights can't be offloaded where ranks share them", result.stderr)
        for overrides, said in ((["strategy=hybrid", "shard_degree=2"], "2 doesn't divide the 3 ranks of this node"),
                                (["strategy=shard", "shard_degree=3"], "is for distributed.strategy=hybrid alone")):
            command = self.command(3, self.programs.work / "refused", *(f"distributed.{o}" for o in overrides))
            result = self.run_command(command, 60)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(said, result.stderr)

    def test_a_finished_run_says_so_on_every_rank(self):
        output = self.programs.work / "finished"
        for said in ("the adapter lies in", *["finished already"] * 3):
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

    def kill(self, launcher, ranks, victim):
        """Kills the rank of a launcher that still runs; all must end in ten seconds. What the launcher said."""
        if launcher.poll() is None:
            os.kill(ranks[victim], signal.SIGKILL)
        begin = time.monotonic()
        _, said = launcher.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        for pid in ranks.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
        return said

    def test_a_killed_rank_ends_the_run_in_ten_seconds_and_it_resumes_as_if_nothing_had_happened(self):
        output = self.programs.work / "killed"
        for victim, at_step in ((1, 4), (0, 8)):
            launcher = self.start(3, output)
            self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= at_step, 120))
            said = self.kill(launcher, self.ranks(launcher), victim)
            self.assertEqual(launcher.returncode, 1, said)
            self.assertIn(f"rank {victim} was killed by signal 9", said)
            self.assertIn("in phase 'training'", said)
        # Any number of processes goes on.
        result = self.run_command(self.command(2, output))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same_losses(output)

    def test_a_killed_rank_ends_a_run_with_weights_in_parts(self):
        output = self.programs.work / "killed_shard"
        launcher = self.start(3, output, "distributed.strategy=shard")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 3, 120))
        said = self.kill(launcher, self.ranks(launcher), 2)
        self.assertEqual(launcher.returncode, 1, said)
        self.assertIn("rank 2 was killed by signal 9", said)

    def test_a_rank_without_memory_is_named(self):
        output = self.programs.work / "memory"
        launcher = self.start(2, output, "training.max_steps=500")
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= 2, 120))
        # Whatever it asks the kernel for from now on it doesn't get.
        resource.prlimit(self.ranks(launcher)[1], resource.RLIMIT_AS, (1 << 20, 1 << 20))
        _, said = launcher.communicate(timeout=60)
        self.assertEqual(launcher.returncode, 1, said)
        self.assertRegex(said, r"rank 1 (ended with exit code 1|failed) in phase 'training': out of memory")

    def slots(self, launcher, ranks):
        """(phase, waits for a collective) of every rank, as the launcher sees them; None before its board exists."""
        for entry in pathlib.Path(f"/proc/{launcher.pid}/fd").iterdir():
            try:
                if "lorikeet-board" in os.readlink(entry):
                    board = entry.read_bytes()
                    size = len(board) // ranks
                    slots = [board[i * size:(i + 1) * size] for i in range(ranks)]
                    return [(slot[:32].split(b"\0")[0].decode(), slot[32 + 512 + 1] == 1) for slot in slots]
            except OSError:
                continue
        return None

    def kill_when(self, launcher, victim, condition):
        """Kills the rank as soon as condition(phase, waits, ranks) holds; what the launcher then said, and its exit code."""

        def reached():
            try:
                slots = self.slots(launcher, 2)
            except OSError:
                return launcher.poll() is not None
            return launcher.poll() is not None or (slots is not None and condition(*slots[victim], ranks))

        self.assertTrue(harness.wait_for(lambda: launcher.poll() is not None or len(self.ranks(launcher)) == 2))
        ranks = self.ranks(launcher)
        self.assertTrue(harness.wait_for(reached, 120, interval=0.001))
        return self.kill(launcher, ranks, victim), launcher.returncode

    def test_a_rank_that_is_killed_anywhere_ends_the_run_which_then_goes_on(self):
        output = self.programs.work / "anywhere"
        rows = (harness.EXAMPLE / "train.jsonl").read_text()
        long = self.programs.work / "long.jsonl"
        long.write_text(rows * 60)  # so that tokenising takes a while

        def saving(phase, _waits, _ranks):
            return phase == "training" and any((output / "checkpoints").glob("*.tmp-*"))

        def phase(*names):
            return lambda phase, _waits, _ranks: phase in names

        def reducing(phase, waits, _ranks):
            return phase == "training" and waits

        elsewhere = [f"data.train.path={long}"]  # and in a folder of its own
        cases = [  # what to wait for, whom to kill, what is told of it, other settings
            (lambda _phase, _waits, _ranks: True, 0, "", elsewhere),
            (phase("rendezvous", "start", "open model", "tokenise"), 1, "", elsewhere),
            (phase("tokenise"), 0, "tokenise", elsewhere),
            (phase("tokenise"), 1, "tokenise", elsewhere),
            (phase("training"), 1, "training", []),
            (reducing, 0, "training", []),
            (reducing, 1, "training", []),
            (saving, 0, "training", []),
        ]
        for number, (condition, victim, told, overrides) in enumerate(cases):
            with self.subTest(case=number):
                folder = output if not overrides else self.programs.work / f"anywhere{number}"
                launcher = self.start(2, folder, "checkpoint.save_every_steps=1", *overrides)
                said, code = self.kill_when(launcher, victim, condition)
                self.assertEqual(code, 1, said)
                self.assertIn(f"rank {victim} was killed by signal 9", said)
                self.assertIn(f"in phase '{told}'" if told else "", said)
        result = self.run_command(self.command(2, output, "checkpoint.save_every_steps=1"))
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
        self.assertIn("'nothing' matches no module", result.stderr)

    def test_the_first_rank_s_error_is_not_put_on_those_that_wait_for_it(self):
        output = self.programs.work / "first"
        result = self.run_command(self.command(4, output, "training.max_steps=4"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.unfinish(output)
        state, = (output / "checkpoints" / "step_3").glob("trainer_state.json")
        state.write_text(state.read_text().replace('"step": 3', '"step": 9999'))
        shutil.rmtree(output / "checkpoints" / "step_4")
        for _ in range(4):
            result = self.run_command(self.command(4, output, "training.max_steps=4"))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, r"\[launch\] rank 0 (failed|ended with exit code 2) in phase 'prepare'")
            self.assertIn("it was damaged or replaced after it was written", result.stderr)
            self.assertNotIn("frame #", result.stderr)

    @staticmethod
    def unfinish(output):
        """As if the run had been killed behind its last checkpoint."""
        record = json.loads((output / "run.json").read_text())
        (output / "run.json").write_text(json.dumps({**record, "finished": False}))

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
