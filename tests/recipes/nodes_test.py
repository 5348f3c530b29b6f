"""Launchers of several machines run one recipe together. The machines are processes here that meet on loopback, and
network namespaces joined by a cable where those are allowed."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

import distributed_test
import harness
import network

SECRET = "0123456789abcdef0123456789abcdef"
LOOPBACK = ("127.0.0.1", ((), ()))  # where to meet, and what each node's command begins with


class Node:
    """A launcher on one node, with what it has said in a file."""

    def __init__(self, command, said, environment):
        self.said_path = said
        with open(said, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=file)
        self.pid = self.process.pid

    def wait(self, timeout=120):
        return self.process.wait(timeout=timeout)

    def said(self):
        return pathlib.Path(self.said_path).read_text(encoding="utf-8")


class NodesCase(unittest.TestCase):
    ranks = distributed_test.Distributed.ranks
    steps_done = distributed_test.Distributed.steps_done
    losses = distributed_test.Distributed.losses
    assert_same_losses = distributed_test.Distributed.assert_same_losses

    @classmethod
    def setUpClass(cls):
        cls.programs = harness.Programs(sys.argv[1])
        cls.single = cls.programs.work / "single"
        result = cls.programs.train(cls.single, distributed_test.FP32)
        assert result.returncode == 0, result.stderr
        cls.secret = cls.programs.work / "secret"
        cls.secret.write_text(SECRET + "\n")
        cls.secret.chmod(0o600)

    def setUp(self):
        self.nodes = []
        self.port = distributed_test.free_port()

    def tearDown(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.wait()

    def start(self, node, processes, output, *overrides, place=LOOPBACK, nnodes=2, options=None, environment=None):
        host, prefixes = place
        prefix = prefixes[node] if node < len(prefixes) else ()
        options = ["--secret-file", str(self.secret)] if options is None else options
        command = [*prefix, str(self.programs.folder / "lorikeet"), "run", "--nnodes", str(nnodes), "--node-rank", str(node),
                   "--rendezvous", f"{host}:{self.port}", "--nproc", str(processes), *options, "lora_finetune_distributed",
                   "--config", str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}",
                   distributed_test.FP32, *overrides]
        started = Node(command, self.programs.work / f"said{len(self.nodes)}",
                       {**distributed_test.ENVIRONMENT, **(environment or {})})
        self.nodes.append(started)
        return started

    def start_both(self, processes, output, *overrides, **options):
        return [self.start(node, count, output, *overrides, **options) for node, count in enumerate(processes)]

    def wait_for_steps(self, nodes, output, steps):
        self.assertTrue(harness.wait_for(lambda: self.steps_done(output) >= steps, 60), "".join(n.said() for n in nodes))

    def all_ranks(self, nodes):
        return {rank: pid for node in nodes for rank, pid in self.ranks(node).items()}

    def assert_ends(self, nodes, codes, seconds=10.0):
        """Every launcher ends in time with its code, and no rank is left."""
        begin = time.monotonic()
        found = [node.wait() for node in nodes]
        self.assertLess(time.monotonic() - begin, seconds)
        self.assertEqual(found, codes, "".join(n.said() for n in nodes))

    def assert_gone(self, pids):
        self.assertTrue(harness.wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), 5))


class OnLoopback(NodesCase):
    def test_any_division_over_nodes_gives_the_losses_of_one_process(self):
        for processes in ((1, 1), (1, 2)):
            output = self.programs.work / f"of{sum(processes)}"
            # A trouble of the second machine's environment.
            troubled = [{}, {"OMP_PROC_BIND": "true"}]
            nodes = [self.start(node, count, output, "distributed.verify=true", environment=troubled[node])
                     for node, count in enumerate(processes)]
            self.assert_ends(nodes, [0, 0], 120)
            warned = "the machine of rank 1: thread binding: OMP_PROC_BIND=true" in nodes[0].said()
            self.assertEqual(warned, processes[1] > 1, nodes[0].said())
            self.assert_same_losses(output)
            self.assertEqual(json.loads((output / "run.json").read_text())["world_size"], sum(processes))

    def test_whatever_ends_one_node_ends_both_and_the_run_resumes_as_if_nothing_had_happened(self):
        output = self.programs.work / "ended"

        nodes = self.start_both((1, 2), output)
        self.wait_for_steps(nodes, output, 4)
        ranks = self.all_ranks(nodes)
        self.assertEqual(sorted(ranks), [0, 1, 2])
        os.kill(ranks[2], signal.SIGKILL)
        self.assert_ends(nodes, [1, 1])
        self.assert_gone(ranks.values())
        for node in nodes:
            self.assertIn("node 1 rank 2 was killed by signal 9", node.said())
            self.assertIn("in phase 'training'", node.said())

        nodes = self.start_both((1, 2), output)
        self.wait_for_steps(nodes, output, 6)
        ranks = self.all_ranks(nodes)
        os.kill(nodes[1].pid, signal.SIGKILL)
        self.assert_ends(nodes, [1, -signal.SIGKILL])
        self.assert_gone(ranks.values())
        self.assertIn("lost node 1", nodes[0].said())

        nodes = self.start_both((1, 1), output)
        self.wait_for_steps(nodes, output, 8)
        ranks = self.all_ranks(nodes)
        os.kill(nodes[1].pid, signal.SIGTERM)
        self.assert_ends(nodes, [130, 130], 60)
        self.assert_gone(ranks.values())
        self.assertTrue((output / "checkpoints" / f"step_{self.steps_done(output)}").is_dir())

        nodes = self.start_both((1, 1), output)
        self.assert_ends(nodes, [0, 0], 120)
        self.assert_same_losses(output)

    def test_a_hang_shows_where_the_ranks_of_all_nodes_stand(self):
        output = self.programs.work / "hung"
        nodes = self.start_both((1, 1), output, "distributed.watchdog_seconds=3", "training.max_steps=500")
        self.wait_for_steps(nodes, output, 2)
        ranks = self.all_ranks(nodes)
        os.kill(ranks[1], signal.SIGSTOP)
        self.assert_ends(nodes, [1, 1], 20)
        self.assert_gone(ranks.values())
        self.assertRegex(nodes[0].said(), r"node 0 rank 0: training, in all-(reduce|gather) \d+")
        self.assertRegex(nodes[0].said(), r"node 1 rank 1: training, (in|behind) all-(reduce|gather) \d+")
        self.assertIn("rank 0 has waited", nodes[1].said())

    def test_a_rank_s_own_error_is_that_of_both_nodes(self):
        nodes = self.start_both((1, 1), self.programs.work / "bad", "lora.target_modules=[nothing]")
        self.assert_ends(nodes, [2, 2], 60)
        for node in nodes:
            self.assertIn("'nothing' matches no linear module", node.said())

    def test_a_joiner_with_another_secret_or_none_is_told_and_the_right_one_is_still_let_in(self):
        output = self.programs.work / "secrets"
        host = self.start(0, 1, output, options=[], environment={"LORIKEET_SECRET": SECRET})
        for environment, expected in (({"LORIKEET_SECRET": SECRET + "x"}, "has another secret"),
                                      ({}, "asks for a secret and this node has none")):
            joiner = self.start(1, 1, output, options=[], environment=environment)
            self.assertEqual(joiner.wait(20), 2)
            self.assertIn(expected, joiner.said())
        right = self.start(1, 1, output)
        self.assert_ends([host, right], [0, 0], 60)
        self.assertIn("turned away a connection", host.said())
        self.assertNotIn(SECRET, host.said() + right.said())

    def test_launchers_that_can_not_meet_say_why(self):
        short = ["--rendezvous-timeout", "1", "--secret-file", str(self.secret)]
        alone = self.start(1, 1, "nowhere", options=short)
        self.assertEqual(alone.wait(20), 3)
        self.assertIn("node 1 can't join node 0", alone.said())
        waiting = self.start(0, 1, "nowhere", options=short)
        self.assertEqual(waiting.wait(20), 3)
        self.assertIn("node 1 of 2 did not join", waiting.said())
        elsewhere = self.start(0, 1, "nowhere", place=("192.0.2.1", ((), ())))
        self.assertEqual(elsewhere.wait(20), 3)
        self.assertIn("not an address of this machine", elsewhere.said())
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", int(self.port)))
            taken.listen()
            late = self.start(0, 1, "nowhere")
            self.assertEqual(late.wait(20), 3)
            self.assertIn("choose another", late.said())
        nodes = [self.start(node, 1, "nowhere", nnodes=2 + node) for node in (0, 1)]
        self.assert_ends(nodes, [2, 2])
        for node in nodes:
            self.assertIn("was given --nnodes 3 and node 0 --nnodes 2", node.said())

    def test_processes_that_torchrun_starts_on_two_machines_find_each_other(self):
        output = self.programs.work / "torchrun"
        group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": self.port}
        program = [str(self.programs.folder / "lora_finetune_distributed"), "--config",
                   str(self.programs.work / "config.yaml"), f"checkpoint.output_dir={output}", distributed_test.FP32,
                   "distributed.interface=lo"]
        for rank in ("0", "1"):
            self.nodes.append(Node(program, self.programs.work / f"said{rank}",
                                   {**distributed_test.ENVIRONMENT, **group, "RANK": rank, "GROUP_RANK": rank}))
        self.assert_ends(self.nodes, [0, 0], 60)
        self.assert_same_losses(output)

    def test_an_interface_that_is_not_there_is_refused_with_those_that_are(self):
        nodes = self.start_both((1, 1), "nowhere", "distributed.interface=none0")
        self.assert_ends(nodes, [2, 2], 20)
        for node in nodes:
            self.assertIn("no interface 'none0' with an address that is up; it has lo (127.0.0.1)", node.said())

    def test_a_batch_system_s_command_for_one_machine_is_a_run_on_it(self):
        output = self.programs.work / "one_machine"
        node = self.start(0, 2, output, "training.max_steps=4", nnodes=1)
        self.assert_ends([node], [0], 60)
        self.assertEqual(json.loads((output / "run.json").read_text())["world_size"], 2)

    def test_settings_that_one_machine_can_t_read_are_told_on_the_other(self):
        nodes = [self.start(0, 1, "nowhere"), self.start(1, 1, "nowhere", "lora.rnak=8")]
        self.assert_ends(nodes, [2, 2], 20)
        for node in nodes:
            self.assertIn("did you mean 'lora.rank'", node.said())
            self.assertIn("node 1 rank 1 ended with exit code 2 in phase 'config'", node.said())

    def test_a_command_line_that_lacks_a_half_is_refused(self):
        recipe = ["lora_finetune_distributed", "--config", self.programs.work / "config.yaml"]
        for options, expected in ((["--nnodes", "2"], "needs --node-rank"),
                                  (["--node-rank", "1"], "add --nnodes"),
                                  (["--nnodes", "2", "--node-rank", "2", "--rendezvous", "127.0.0.1:1"],
                                   "--node-rank 2 is not a number below --nnodes, 2"),
                                  (["--nnodes", "2", "--node-rank", "0", "--rendezvous", "here"], "expected host:port")):
            result = self.programs.verb("run", *options, *recipe)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(expected, result.stderr)
        open_to_all = self.programs.work / "open"
        open_to_all.write_text(SECRET)
        open_to_all.chmod(0o644)
        readable = self.start(0, 1, "nowhere", options=["--secret-file", str(open_to_all)])
        self.assertEqual(readable.wait(20), 2)
        self.assertIn("chmod 600", readable.said())


class InNamespaces(NodesCase):
    @classmethod
    def setUpClass(cls):
        try:
            with network.TwoHosts():
                pass
        except OSError as error:
            raise unittest.SkipTest(str(error)) from error
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.hosts = network.TwoHosts()
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)  # after tearDown, which ends what runs in the namespaces
        self.place = (network.ADDRESSES[0], tuple(tuple(self.hosts.on(host, [])) for host in (0, 1)))

    def test_two_machines_compute_what_one_does_and_listen_on_the_cable_alone(self):
        output = self.programs.work / "cable"
        nodes = self.start_both((1, 1), output, place=self.place)
        self.wait_for_steps(nodes, output, 2)
        for host, address in enumerate(network.ADDRESSES):
            listed = harness.run(self.hosts.on(host, ["ss", "-Hltn"]), 20).stdout.splitlines()
            self.assertTrue(listed)
            for line in listed:
                self.assertEqual(line.split()[3].rsplit(":", 1)[0], address, line)
        self.assert_ends(nodes, [0, 0], 120)
        self.assert_same_losses(output)

    def test_a_cut_cable_ends_both_machines(self):
        output = self.programs.work / "cut"
        nodes = self.start_both((1, 1), output, "training.max_steps=500", place=self.place)
        self.wait_for_steps(nodes, output, 2)
        ranks = self.all_ranks(nodes)
        self.hosts.cut()
        self.assert_ends(nodes, [1, 1], 15)
        self.assert_gone(ranks.values())
        self.assertIn("node 0 lost node 1", nodes[0].said())
        self.assertIn("node 1 lost node 0", nodes[1].said())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
