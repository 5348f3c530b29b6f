"""Runs that other launchers start: torchrun on one machine and on two, which are network namespaces joined by a cable, mpirun,
and processes with torchrun's variables where the store is rank 0's, as under srun. Whatever ends one rank ends all."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import distributed_test
import harness
import network

# Ranks report twice a second, and hear of each other as often: after STEPS steps of these, a quarter to half a second each on a
# fast machine, all have heard of the training.
SETTINGS = (distributed_test.FP32, "batch.global=80")
STEPS = 5
TORCHRUN = pathlib.Path(sys.executable).with_name("torchrun")


class Process:
    """A launcher, or a rank, with what it and its ranks have said in a file."""

    def __init__(self, command, said, environment=None, folder=None):
        self.said_path = said
        with open(said, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, env={**distributed_test.ENVIRONMENT, **(environment or {})},
                                            stdout=subprocess.DEVNULL, stderr=file, cwd=folder)
        self.pid = self.process.pid

    def said(self):
        return pathlib.Path(self.said_path).read_text(encoding="utf-8")


def runs(pid):
    """Whether a process exists and is no zombie, which a launcher has yet to wait for."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Case(unittest.TestCase):
    losses = distributed_test.Distributed.losses
    steps_done = staticmethod(distributed_test.Distributed.steps_done)
    assert_same_losses = distributed_test.Distributed.assert_same_losses

    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.single = cls.programs.work / "single"
        result = cls.programs.train(cls.single, *SETTINGS)
        assert result.returncode == 0, result.stderr

    def setUp(self):
        self.started = []
        self.port = distributed_test.free_port()

    def tearDown(self):
        for started in self.started:
            for pid in [*self.ranks([started]).values(), started.pid]:
                if runs(pid):
                    os.kill(pid, signal.SIGKILL)
            started.process.wait()

    def start(self, command, environment=None, folder=None):
        said = self.programs.work / f"said{len(self.started)}"
        self.started.append(Process(list(map(str, command)), said, environment, folder))
        return self.started[-1]

    def program(self, output, *overrides):
        return [self.programs.folder / "lora_finetune_distributed", "--config", self.programs.work / "config.yaml",
                f"checkpoint.output_dir={output}", *SETTINGS, *overrides]

    def variables(self, rank, address):
        """Those that torchrun sets for a rank on each of two machines, but for its own store."""
        return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": address,
                "MASTER_PORT": self.port}

    def ranks(self, launchers):
        return {rank: pid for launcher in launchers
                for rank, pid in distributed_test.Distributed.ranks(self, launcher, "RANK").items()}

    def wait_for_steps(self, launchers, output, steps):
        reached = harness.wait_for(lambda: self.steps_done(output) >= steps, 60)
        self.assertTrue(reached, "".join(launcher.said() for launcher in launchers))

    def assert_end(self, pids, seconds=10):
        self.assertTrue(harness.wait_for(lambda: not any(map(runs, pids)), seconds), [pid for pid in pids if runs(pid)])

    def wait(self, launchers, timeout=60):
        return [launcher.process.wait(timeout=timeout) for launcher in launchers]

    def assert_finishes(self, launchers, output):
        self.assertEqual(self.wait(launchers, 120), [0] * len(launchers), "".join(launcher.said() for launcher in launchers))
        self.assertEqual(json.loads((output / "run.json").read_text())["world_size"], 2)
        self.assert_same_losses(output)

    def assert_interrupts(self, launchers, output, number):
        """A signal to the last launcher: all ranks save what was done, and end."""
        ranks = self.ranks(launchers)
        os.kill(launchers[-1].pid, number)
        self.assert_end(ranks.values(), 30)
        self.assertNotIn(0, self.wait(launchers))
        said = "".join(launcher.said() for launcher in launchers)
        self.assertTrue((output / "checkpoints" / f"step_{self.steps_done(output)}").is_dir(), said)
        self.assertEqual(said.count("a checkpoint was saved"), 2, said)
        self.assertNotIn("[watch]", said)

    def assert_ends_after(self, launchers, victim, number):
        """A signal to a rank, which is lost by it: the other one names it, and ends within ten seconds."""
        ranks = self.ranks(launchers)
        os.kill(ranks[victim], number)
        self.assert_end([pid for rank, pid in ranks.items() if rank != victim])
        said = launchers[0].said()
        self.assertRegex(said, rf"rank {victim}( on \S+)? has been silent for 5 s, last in phase 'training' \(training, (in|behind) all-")
        return ranks


class OneMachine(Case):
    def test_torchrun_starts_ranks_and_whatever_ends_one_ends_all(self):
        if not TORCHRUN.exists():
            self.skipTest(f"{TORCHRUN} is not there")
        output = self.programs.work / "torchrun"

        def start():
            return [self.start([TORCHRUN, "--no-python", "--master-port", self.port, "--nproc-per-node", "2",
                                *self.program(output)])]

        launchers = start()
        self.wait_for_steps(launchers, output, STEPS)
        self.assert_ends_after(launchers, 1, signal.SIGKILL)
        self.assertEqual(self.wait(launchers), [1])

        launchers = start()
        self.wait_for_steps(launchers, output, 6)
        self.assert_interrupts(launchers, output, signal.SIGINT)
        self.assert_finishes(start(), output)

    def test_ranks_that_torchrun_starts_again_go_on_from_the_last_checkpoint(self):
        if not TORCHRUN.exists():
            self.skipTest(f"{TORCHRUN} is not there")
        output = self.programs.work / "again"
        launcher = self.start([TORCHRUN, "--no-python", "--master-port", self.port, "--nproc-per-node", "2", "--max-restarts", "1",
                               *self.program(output, "checkpoint.save_every_steps=2")])
        self.wait_for_steps([launcher], output, STEPS)
        os.kill(self.ranks([launcher])[1], signal.SIGKILL)
        self.assert_finishes([launcher], output)
        self.assertIn("resuming after step", launcher.said())

    def test_mpirun_starts_ranks(self):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed (Debian's package is openmpi-bin)")
        output = self.programs.work / "mpirun"
        launcher = self.start(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "-x", "MASTER_ADDR=127.0.0.1",
                               "-x", f"MASTER_PORT={self.port}", *self.program(output)])
        self.assert_finishes([launcher], output)


class StoreOfRankZero(Case):
    """Nothing but the ranks themselves: what one knows of the other it has from the store, which rank 0 holds."""

    def start_both(self, output, *overrides, second=(), folders=(None, None)):
        return [self.start(self.program(output, *overrides, "distributed.interface=lo", *(second if rank else ())),
                           self.variables(rank, "127.0.0.1"), folders[rank]) for rank in (0, 1)]

    def test_the_end_of_the_store_s_holder_ends_the_other_rank_and_the_run_goes_on(self):
        output = self.programs.work / "holder"
        ranks = self.start_both(output)
        self.wait_for_steps(ranks, output, STEPS)
        os.kill(ranks[0].pid, signal.SIGKILL)
        self.assert_end([ranks[1].pid])
        self.assertEqual(self.wait(ranks), [-signal.SIGKILL, 1])
        said = ranks[1].said()
        self.assertRegex(said, r"the run's store, which rank 0 holds, is gone .*; rank 0 was last in phase 'training'")
        self.assertIn("the same command goes on from the last checkpoint", said)
        self.assertEqual(said.count("error:"), 1, said)
        self.assert_finishes(self.start_both(output), output)

    def test_no_rank_leaves_an_interrupted_run_before_the_first_one_has_saved(self):
        # srun, mpirun and torchrun end all ranks when one has ended with an error, as 130 is to them.
        output = self.programs.work / "slow-save"
        slow = {"LD_PRELOAD": sys.argv[2], "LORIKEET_FAULT_ROOTS": str(output / "checkpoints"), "LORIKEET_FAULT_AT": "1",
                "LORIKEET_FAULT_HOW": "slow"}
        ranks = [self.start(self.program(output, "distributed.interface=lo", "checkpoint.save_every_epochs=null"),
                            {**self.variables(rank, "127.0.0.1"), **(slow if rank == 0 else {})}) for rank in (0, 1)]
        self.wait_for_steps(ranks, output, 3)
        for _ in range(2):  # one request, as launchers give it: to the process, and to its group
            os.kill(ranks[1].pid, signal.SIGTERM)
            time.sleep(0.01)
        ranks[1].process.wait(timeout=60)
        self.assertTrue((output / "checkpoints" / f"step_{self.steps_done(output)}").is_dir(), ranks[1].said())
        self.assertEqual(self.wait(ranks), [130, 130], ranks[0].said())
        self.assertIn("a checkpoint was saved", ranks[1].said())

    def test_all_start_from_the_first_rank_s_adapter(self):
        # Two machines may hold different folders under one name.
        folders = [self.programs.work / name for name in ("here", "there")]
        for seed, folder in enumerate(folders):
            result = self.programs.train(folder / "start", *SETTINGS, "training.max_steps=3", f"training.seed={seed}")
            self.assertEqual(result.returncode, 0, result.stderr)
        alone, both = self.programs.work / "alone", self.programs.work / "both"
        result = self.programs.train(alone, *SETTINGS, "training.max_steps=3", f"lora.init={folders[0] / 'start'}")
        self.assertEqual(result.returncode, 0, result.stderr)
        ranks = self.start_both(both, "training.max_steps=3", "lora.init=start", folders=folders)
        self.assertEqual(self.wait(ranks), [0, 0], ranks[0].said())
        self.assert_same_losses(both, alone)

    def test_a_rank_s_own_error_is_that_of_both(self):
        for second, expected in ((["optimizer.lr=1e-5"], "optimizer.lr differs between ranks: '0.002' on rank 0, '1.0e-5' on rank 1"),
                                 (["model.path=nowhere"], "nowhere")):
            ranks = self.start_both(self.programs.work / "nowhere", second=second)
            self.assertEqual(self.wait(ranks, 30), [2, 2], ranks[0].said())
            for rank in ranks:
                self.assertIn(expected, rank.said())
                self.assertEqual(rank.said().count("error:"), 1, rank.said())

    def test_an_error_in_mid_run_is_that_of_both_and_they_say_how_the_run_goes_on(self):
        output = self.programs.work / "full"
        full = {"LD_PRELOAD": sys.argv[2], "LORIKEET_FAULT_ROOTS": str(output / "checkpoints"), "LORIKEET_FAULT_AT": "1",
                "LORIKEET_FAULT_HOW": "full"}
        command = self.program(output, "distributed.interface=lo", "checkpoint.save_every_steps=2")
        ranks = [self.start(command, {**self.variables(rank, "127.0.0.1"), **(full if rank == 0 else {})}) for rank in (0, 1)]
        self.assertEqual(self.wait(ranks), [3, 3], ranks[1].said())
        for rank, outlook in zip(ranks, ("no checkpoint is there: the same command begins anew",
                                         "the same command goes on from the last checkpoint that was saved")):
            said = rank.said()
            self.assertIn("No space left on device", said)
            self.assertIn(outlook, said)
            self.assertEqual(said.count("error:"), 1, said)

    def test_a_rank_that_is_started_twice_ends_and_leaves_the_run_alone(self):
        output = self.programs.work / "twice"
        ranks = self.start_both(output)
        self.wait_for_steps(ranks, output, 1)
        copy = self.start(self.program(output, "distributed.interface=lo"), self.variables(1, "127.0.0.1"))
        self.assertEqual(self.wait([copy]), [2], copy.said())
        self.assertRegex(copy.said(), rf"rank 1 was started twice: process {ranks[1].pid} on \S+ has it already, and this is process "
                                      rf"{copy.pid} on ")
        self.assertEqual(copy.said().count("error:"), 1, copy.said())
        self.assert_finishes(ranks, output)

    def test_what_differs_in_how_ranks_were_started_is_named_by_all(self):
        for other, expected in (({"WORLD_SIZE": "3"}, "rank 0 was started as one of 2 processes, 1 a machine, and rank 1"),
                                ({"LORIKEET_REFERENCE_OPS": "1"}, "LORIKEET_REFERENCE_OPS differs between ranks: '0' on rank 0")):
            command = self.program(self.programs.work / "differs", "distributed.interface=lo")
            ranks = [self.start(command, {**self.variables(rank, "127.0.0.1"), **(other if rank else {})}) for rank in (0, 1)]
            self.assertEqual(self.wait(ranks, 30), [2, 2], ranks[0].said())
            for rank in ranks:
                self.assertIn(expected, rank.said())


class TwoMachines(Case):
    @classmethod
    def setUpClass(cls):
        try:
            with network.TwoHosts():
                pass
        except OSError as error:
            raise unittest.SkipTest(str(error)) from error
        if not TORCHRUN.exists():
            raise unittest.SkipTest(f"{TORCHRUN} is not there")
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.hosts = network.TwoHosts()
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)  # after tearDown, which ends what runs in the namespaces

    def start_both(self, output):
        return [self.start(self.hosts.on(host, [TORCHRUN, "--no-python", "--nnodes", "2", "--node-rank", host, "--nproc-per-node",
                                                "1", "--master-addr", network.ADDRESSES[0], "--master-port", self.port,
                                                *self.program(output)])) for host in (0, 1)]

    def test_whatever_ends_one_rank_ends_both_and_the_run_goes_on_as_if_nothing_had_happened(self):
        output = self.programs.work / "two"
        launchers = self.start_both(output)
        self.wait_for_steps(launchers, output, STEPS)
        for host, address in enumerate(network.ADDRESSES):
            pid = self.ranks([launchers[host]])[host]
            listed = harness.run(self.hosts.on(host, ["ss", "-Hltnp"]), 20).stdout.splitlines()
            own = [line.split()[3].rsplit(":", 1)[0] for line in listed if f"pid={pid}," in line]
            self.assertEqual(set(own), {address}, listed)
        ranks = self.assert_ends_after(launchers, 1, signal.SIGSTOP)
        os.kill(ranks[1], signal.SIGCONT)
        self.assert_end(ranks.values())  # the stopped one too, once it goes on
        self.assertNotIn(0, self.wait(launchers))

        launchers = self.start_both(output)
        self.wait_for_steps(launchers, output, 6)
        self.assert_interrupts(launchers, output, signal.SIGTERM)
        self.assert_finishes(self.start_both(output), output)

    def test_a_cut_cable_ends_both_machines(self):
        output = self.programs.work / "cut"
        ranks = [self.start(self.hosts.on(host, self.program(output, "training.max_steps=500")),
                            self.variables(host, network.ADDRESSES[0])) for host in (0, 1)]
        self.wait_for_steps(ranks, output, 2)
        self.hosts.cut()
        self.assert_end([rank.pid for rank in ranks])
        self.assertRegex(ranks[0].said(), r"rank 1 on \S+ has been silent for 5 s.*; .*the same command (goes on from|begins anew)")
        self.assertIn("the run's store, which rank 0 holds, gave no answer in 5 s", ranks[1].said())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
