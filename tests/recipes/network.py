"""Hosts on one machine: network namespaces, two of them joined by a veth pair whose rate `tc` limits. Needs root and
iproute2; raises OSError where they can't be had."""

import os
import shutil
import subprocess

ADDRESSES = ("10.231.77.1", "10.231.77.2")


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True)


def sent_bytes(space, interface):
    """What the kernel has counted out of an interface."""
    path = f"/sys/class/net/{interface}/statistics/tx_bytes"
    return int(subprocess.run(["ip", "netns", "exec", space, "cat", path], check=True, capture_output=True,
                              text=True).stdout)


class Hosts:
    """A context in which `spaces` exist, each with its loopback, and what connect() adds."""

    spaces = ()

    def connect(self):
        pass

    def __enter__(self):
        if shutil.which("ip") is None:
            raise OSError("iproute2 is not installed")
        try:
            for space in self.spaces:
                run("ip", "netns", "add", space)
                run("ip", "-n", space, "link", "set", "lo", "up")
            self.connect()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise OSError(f"network namespaces can't be made here: {error.stderr.strip()}") from error
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


class OneHost(Hosts):
    """A namespace with nothing but its loopback."""

    def __init__(self):
        self.spaces = (f"lk{os.getpid() % 100000}l",)

    def on(self, command):
        return ["ip", "netns", "exec", self.spaces[0], *command]

    def sent_bytes(self):
        return sent_bytes(self.spaces[0], "lo")


class TwoHosts(Hosts):
    """Host 0 and host 1, which reach each other at ADDRESSES alone."""

    def __init__(self):
        tag = f"lk{os.getpid() % 100000}"
        self.spaces = (f"{tag}a", f"{tag}b")
        self.links = (f"{tag}va", f"{tag}vb")

    def connect(self):
        run("ip", "link", "add", self.links[0], "netns", self.spaces[0], "type", "veth", "peer", "name",
            self.links[1], "netns", self.spaces[1])
        for host, (space, link) in enumerate(zip(self.spaces, self.links)):
            run("ip", "-n", space, "addr", "add", f"{ADDRESSES[host]}/24", "dev", link)
            run("ip", "-n", space, "link", "set", link, "up")

    def limit(self, gigabits):
        """Bits a second of each direction; None: no limit."""
        for space, link in zip(self.spaces, self.links):
            subprocess.run(["tc", "-n", space, "qdisc", "del", "dev", link, "root"], capture_output=True, check=False)
            if gigabits is not None:
                run("tc", "-n", space, "qdisc", "add", "dev", link, "root", "tbf", "rate", f"{gigabits * 1000:.0f}mbit",
                    "burst", "256kb", "latency", "100ms")

    def cut(self):
        run("ip", "-n", self.spaces[1], "link", "set", self.links[1], "down")

    def on(self, host, command):
        """The command line that runs `command` on that host."""
        return ["ip", "netns", "exec", self.spaces[host], *command]

    def sent_bytes(self, host):
        return sent_bytes(self.spaces[host], self.links[host])
