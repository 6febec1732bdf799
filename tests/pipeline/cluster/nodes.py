"""Machines on this machine: nodes with a network, mounts and processes of their own, on one switch.

    with switched_network() as network:
        node = network.add_node()
        node.mount(Path("/data"))                       # an empty tmpfs that only this node sees
        node.run(["ip", "route"])
        node.sees(Path("/data/file")).read_bytes()      # its file, seen from here

a. A node has its own address; nodes and this process reach each other by address only. There is no route out of
   their network. It is 198.18.N.0/24 or 198.19.N.0/24, from the range for network benchmarks; this process is .1.
b. A node starts with the root file system. Its mounts and read-only directories affect no other node.
c. A node's processes are in a PID namespace: when its first process ends, the kernel kills all others.
d. Nothing is left behind, even after kill -9 of this process: the kernel then kills every node, and namespaces, mounts,
   bridge and interfaces vanish with their last process. No name is left in /run/netns, because none is created.

`lacking()` returns what the machine lacks: it must be Linux, and the user root with the right to create namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "mount", "umount", "env")
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL"]
FIRST_PROCESS = """
read -r pid rest < /proc/self/stat
mount -t proc proc /proc && ip link set lo up && echo "$pid" && exec 1>&-
sleep infinity & wait
"""
"""Prints its process id as this process sees it, and reaps orphans while the node lives."""
DEADLINE_S = 10
PAUSE_S = 0.02


def lacking() -> str | None:
    """Why this machine cannot run nodes; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"{', '.join(missing)} not on this machine (Debian: iproute2, util-linux, mount)"
    name = _random_name()
    tries = [
        [*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/tmp"],
        [*NAMESPACES, "ip", "link", "add", "br0", "type", "bridge"],
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"],
        ["ip", "link", "del", name],
    ]
    for command in tries:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return f"not allowed here: {' '.join(command)}: {done.stderr.strip()}"
    return None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine."""

    address: str
    """Empty for the switch."""
    pid: int
    """The id of its first process, as this process sees it."""

    def command(self, command: Sequence[str | Path], directory: Path = Path("/")) -> list[str]:
        """The command to start here, so that `command` runs in the node, in that directory.

        Put it into a session of its own (`start_new_session=True`) and kill the group: nsenter passes no signals on."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--"]
        return [*enter, "env", "-C", str(directory), *map(str, command)]

    def run(self, command: Sequence[str | Path], stdin: str = "") -> str:
        """Runs the command in the node; returns its output. Raises RuntimeError unless it exits with 0."""
        done = subprocess.run(self.command(command), input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{self.address}: {' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def sees(self, path: Path) -> Path:
        """The path, in this process, of the node's file at an absolute path."""
        return Path(f"/proc/{self.pid}/root", *path.parts[1:])

    def mount(self, target: Path, kind: str = "tmpfs", options: str = "size=64m", source: str = "none") -> None:
        """Mounts a file system over a directory, also for the node's running processes."""
        self.run(["mount", "-t", kind, "-o", options, source, target])

    def unmount(self, target: Path) -> None:
        """Removes the topmost mount, even if files on it are open."""
        self.run(["umount", "--lazy", target])

    def processes(self, words: str = "") -> list[int]:
        """The ids, as this process sees them, of the node's living processes with these words in their command line."""
        here = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return sorted(pid for pid in found if _namespace(pid) == here and words in _command_line(pid))


def kill(pid: int) -> None:
    """kill -9; returns when the process has ended or is a zombie."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    deadline = time.monotonic() + DEADLINE_S
    while _command_line(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} is there {DEADLINE_S} s after kill -9")
        time.sleep(PAUSE_S)


def parent(pid: int) -> int:
    """The id of the process that started this one; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has ended
        return ""


def _command_line(pid: int) -> str:
    """The command line, separated by spaces; empty for ended processes and zombies."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Network:
    """The switch and the interface of this process; adds nodes."""

    def __init__(self, stack: ExitStack, switch: Node, prefix: str) -> None:
        self._stack = stack
        self._switch = switch
        self._prefix = prefix
        self._last = 1
        self.address = f"{prefix}.1"
        """The address of this process, on which servers for the nodes listen."""

    def add_node(self) -> Node:
        self._last += 1
        pid = self._stack.enter_context(_first_process())
        node = Node(f"{self._prefix}.{self._last}", pid)
        port = f"port{self._last}"
        _ip(self._switch, f"link add {port} type veth peer name eth0 netns {pid}", f"link set {port} master br0 up")
        _ip(node, f"addr add {node.address}/24 dev eth0", "link set eth0 up")
        return node

    def unplug(self, node: Node) -> None:
        """Disconnects the node both ways; connections stay open."""
        _ip(self._switch, f"link set {self._port(node)} down")

    def plug_in(self, node: Node) -> None:
        _ip(self._switch, f"link set {self._port(node)} up")

    def _port(self, node: Node) -> str:
        return f"port{node.address.rpartition('.')[2]}"


@contextmanager
def switched_network() -> Iterator[Network]:
    """A network without nodes. Its nodes end with it."""
    with ExitStack() as stack:
        switch = Node("", stack.enter_context(_first_process()))
        _ip(switch, "link add br0 type bridge", "link set br0 up")
        name, prefix = _random_name(), _unused_prefix()
        stack.callback(_remove_link, name)
        _ip(None, f"link add {name} type veth peer name port1 netns {switch.pid}")
        _ip(switch, "link set port1 master br0 up")
        _ip(None, f"addr add {prefix}.1/24 dev {name}", f"link set {name} up")
        yield Network(stack, switch, prefix)


@contextmanager
def _first_process() -> Iterator[int]:
    """A process in new namespaces, which dies with the thread that starts it."""
    command = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, "sh", "-c", FIRST_PROCESS]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not (pid := process.stdout.readline().strip()):
                raise RuntimeError(f"{' '.join(NAMESPACES)} ended with {process.wait()}")
            yield int(pid)
        finally:
            process.kill()


def _ip(node: Node | None, *lines: str) -> None:
    """Runs commands of ip(8) in a node, or here."""
    command = ["ip", "-batch", "-"]
    enter = [] if node is None else ["nsenter", "--target", str(node.pid), "--net", "--"]
    done = subprocess.run([*enter, *command], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {'; '.join(lines)}: {done.stderr.strip()}")


def _remove_link(name: str) -> None:
    """Removes an interface, which would otherwise vanish later with the switch."""
    subprocess.run(["ip", "link", "del", name], capture_output=True)


def _random_name() -> str:
    """A random interface name of at most 15 characters."""
    return f"od-{uuid.uuid4().hex[:8]}"


def _unused_prefix() -> str:
    """The first three numbers of a network in 198.18.0.0/15 in which this machine has no address."""
    used = subprocess.run(["ip", "-oneline", "addr"], capture_output=True, text=True, check=True).stdout
    while f" {(prefix := f'198.{SystemRandom().choice((18, 19))}.{SystemRandom().randrange(256)}')}." in used:
        pass
    return prefix
