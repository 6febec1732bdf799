"""The members of a group, each a process with one of the clients, and what each has processed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.members.orders import BY_THE_BROKER, SETTINGS, STATIC, Position

ROOT = Path(__file__).parents[3]
JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
PYTHON_KINDS = {
    "kafka-python": "tests.clients.members.kafka_python_member",
    "aiokafka": "tests.clients.members.aiokafka_member",
    "confluent": "tests.clients.members.confluent_member",
}
SHOWS_STACKS_S = 0.2
NEWEST_KAFKA = "4.4.0"
"""The newest release of Kafka's own clients."""


@dataclass(slots=True)
class Programs:
    """The commands that start the members and copiers that are not Python."""

    java_tools: list[str]
    java: list[str]
    franz_go: Path
    spring: list[str] = field(default_factory=list)
    platformatic: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Member:
    """A running member. A thread reads its output: `records` are those it processed, `events` its other lines.

    `heard` are the records of the whole crew, in the order in which they were read.
    """

    kind: str
    process: subprocess.Popen[str]
    heard: list[tuple[Position, Member]] = field(repr=False, compare=False)
    records: list[Position] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    killed: bool = False
    reader: threading.Thread | None = None

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._heard(line.split())

    def _heard(self, words: list[str]) -> None:
        match words:
            case ["record", partition, offset]:
                self._processed((int(partition), int(offset)))
            case [partition, offset] if partition.startswith("Partition:"):  # the console consumer's
                self._processed((int(partition.partition(":")[2]), int(offset.partition(":")[2])))
            case [word] if word.startswith("{"):  # VerifiableConsumer's
                self._verified(json.loads(word))
            case _:
                self.events.append(" ".join(words))

    def _verified(self, line: dict[str, Any]) -> None:
        match line["name"]:
            case "records_consumed":
                for read in line["partitions"]:
                    for offset in range(read["minOffset"], read["maxOffset"] + 1):
                        self._processed((read["partition"], offset))
            case "offsets_committed" if not line["success"]:
                self.events.append(f"commit-failed {line['error']}")
            case "partitions_assigned" | "partitions_revoked" | "partitions_lost":
                partitions = sorted(each["partition"] for each in line["partitions"])
                self.events.append(" ".join([line["name"].removeprefix("partitions_"), *map(str, partitions)]))

    def _processed(self, position: Position) -> None:
        self.records.append(position)
        self.heard.append((position, self))

    def stall(self, seconds: float) -> None:
        """Stops it from polling for `seconds`; its heartbeats continue."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"stall {seconds}\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        """SIGTERM: it commits, closes, and (unless it is static) leaves the group."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.ended()
        assert self.process.returncode in (0, 130, 143), (self.kind, self.process.returncode, self.events[-20:])

    def kill(self) -> None:
        self.killed = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.ended()

    def show_stacks(self) -> None:
        """A member in Python writes to the crew's log where each of its threads is."""
        if self.kind in PYTHON_KINDS:
            os.kill(self.process.pid, signal.SIGUSR1)
            time.sleep(SHOWS_STACKS_S)

    def ended(self) -> None:
        """Waits until it has ended and all its output was read."""
        self.process.wait(30)
        if self.reader is not None:
            self.reader.join(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass(slots=True)
class Crew:
    """Starts the members of one group, and keeps all of them, ended ones too."""

    bootstrap: str
    group: str
    topic: str
    strategy: str
    programs: Programs
    log: Path
    all: list[Member] = field(default_factory=list, repr=False)
    heard: list[tuple[Position, Member]] = field(default_factory=list, repr=False)
    """Each record, with who has processed it: too much for a traceback."""

    def start(self, kind: str, instance: str | None = None) -> Member:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command(kind, instance),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                    **({"KAFKA_VERSION": NEWEST_KAFKA} if kind == "verifiable" else {}),
                },
            )
        member = Member(kind, process, self.heard)
        member.reader = threading.Thread(target=member._read, name=f"reader of {kind}")
        member.reader.start()
        self.all.append(member)
        return member

    def _command(self, kind: str, instance: str | None) -> Sequence[str]:
        where = [self.bootstrap, self.group, self.topic, self.strategy]
        as_whom = ["--instance", instance] if instance else []
        if kind == "console":
            return self._console_consumer(instance)
        if kind == "verifiable":
            return self._verifiable_consumer(instance)
        if kind == "spring":
            return [*self.programs.spring, "odradek.Listener", *where, *as_whom]
        if kind == "platformatic":
            return [*self.programs.platformatic, *where, *as_whom]
        if kind == "java":
            return [*self.programs.java, "odradek.Member", *where, *as_whom]
        if kind == "franz-go":
            return [str(self.programs.franz_go), "member", *where, *as_whom]
        return [sys.executable, "-m", PYTHON_KINDS[kind], *where, *as_whom]

    def _console_consumer(self, instance: str | None) -> Sequence[str]:
        """It commits what it has printed by itself: when it polls, closes or is about to rejoin."""
        settings = {
            "group.id": self.group,
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[self.strategy]}",
            "auto.commit.interval.ms": 200,
            **SETTINGS,
        }
        if instance:
            settings |= {**STATIC, "group.instance.id": instance}
        command = [*self.programs.java_tools, "org.apache.kafka.tools.consumer.ConsoleConsumer"]
        command += ["--bootstrap-server", self.bootstrap, "--topic", self.topic]
        for name, value in settings.items():
            command += ["--consumer-property", f"{name}={value}"]
        for name in ("print.partition=true", "print.offset=true", "print.value=false"):
            command += ["--property", name]
        return command

    def _verifiable_consumer(self, instance: str | None) -> Sequence[str]:
        """Kafka's own: it prints what it has read, then commits."""
        command = [*self.programs.java_tools, "org.apache.kafka.tools.VerifiableConsumer"]
        command += ["--bootstrap-server", self.bootstrap, "--group-id", self.group, "--topic", self.topic]
        command += ["--reset-policy", "earliest"]
        if self.strategy == BY_THE_BROKER:
            command += ["--group-protocol", "consumer"]
        else:
            assignor = JAVA_ASSIGNORS[self.strategy]
            command += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
        return [*command, *(["--group-instance-id", instance] if instance else [])]

    def end(self) -> None:
        for member in self.all:
            if member.process.poll() is None:
                member.show_stacks()
                os.killpg(member.process.pid, signal.SIGKILL)
            member.ended()

    def processed_by(self) -> dict[Position, list[Member]]:
        """The members that processed a record, in order."""
        who: dict[Position, list[Member]] = defaultdict(list)
        for position, member in self.heard:
            who[position].append(member)
        return who
