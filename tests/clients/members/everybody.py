"""Everybody's programs at once on one topic: a group of each protocol with a member of each client, and copiers in
transactions. Whatever happens to the brokers, nothing is lost and nothing comes twice.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.clients.members.crew import Crew, Programs
from tests.clients.members.orders import BY_THE_BROKER
from tests.clients.members.watch import Seen, Watch
from tests.clients.test_rebalance import assert_all_is_processed, until_all_work
from tests.clients.transactions import CopierProcess, Numbers, read_committed, until_no_transaction_is_open
from tests.sequences import assert_same

TOPIC, PARTITIONS, PER_SECOND = "numbers", 12, 300
MEMBERS = ("java", "verifiable", "spring", "confluent", "franz-go", "platformatic")
STRATEGIES = {"classic": "range", "consumer": BY_THE_BROKER}
"""By protocol."""
REPEATING = {"classic": ("franz-go", "platformatic"), "consumer": ("platformatic",)}
"""If a classic group's coordinator does not answer, franz-go gives its partitions up, though the group keeps them, and
joins again: it reads once more what it could not commit. After an error platformatic goes back to the last commit, and
gives what it had prefetched besides.
"""
COPIERS = ("java", "confluent", "streams")
GROUPS = (*STRATEGIES, *COPIERS)
"""Who has a group."""
TARGETS = {copier: f"copied-by-{copier}" for copier in COPIERS}
"""The topics of the copiers."""
SHOWN_OF_LOGS = 5000


class Everybody:
    """`groups`: the name of each group. The topics exist."""

    def __init__(self, bootstrap: str, groups: Mapping[str, str], programs: Programs, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.watches = {who: Watch(bootstrap, groups[who], TOPIC, PARTITIONS) for who in GROUPS}
        self.crews = {
            protocol: Crew(bootstrap, groups[protocol], TOPIC, strategy, programs, directory / f"{protocol}.log")
            for protocol, strategy in STRATEGIES.items()
        }
        commands = {
            "java": [*programs.java, "odradek.Copier"],
            "confluent": [sys.executable, "-m", "tests.clients.copiers.confluent_copier"],
            "streams": programs.streams,
        }
        self.copiers: dict[str, CopierProcess] = {}
        for copier, command in commands.items():
            more = [str(PARTITIONS)] if copier == "streams" else [f"id-of-{copier}", "consumer"]
            where = [bootstrap, TOPIC, TARGETS[copier], groups[copier]]
            self.copiers[copier] = CopierProcess([*command, *where, *more], directory / f"{copier}.log")

    def start(self) -> None:
        """Members of the classic protocol are static."""
        for protocol, crew in self.crews.items():
            self.watches[protocol].commit_the_start()
            for kind in MEMBERS:
                crew.start(kind, f"static-{kind}" if protocol == "classic" else None)
        for copier in self.copiers.values():
            copier.start()
        for protocol in self.crews:
            self.watches[protocol].until_stable(len(MEMBERS))

    def until_all_work(self) -> None:
        """Waits until each member and each copier has done more."""
        for crew in self.crews.values():
            until_all_work(crew.all)
        for copier in self.copiers.values():
            copier.until_it_works()

    def look(self) -> dict[str, Seen]:
        """The groups of the members."""
        return {protocol: self.watches[protocol].look() for protocol in self.crews}

    def until_all_is_done(self) -> None:
        """Waits until all that was written is committed, and ends all programs."""
        for watch in self.watches.values():
            watch.until_all_is_committed()
        for crew in self.crews.values():
            for member in crew.all:
                member.leave()
        between = f"{self.watches['streams'].group}-between-repartition"
        Watch(self.bootstrap, self.watches["streams"].group, between, PARTITIONS).until_all_is_committed()
        for name, copier in self.copiers.items():
            until_no_transaction_is_open(self.bootstrap, TARGETS[name], PARTITIONS)
            copier.kill()

    def end(self) -> None:
        """Kills what still runs, and prints what the programs said: pytest shows it if the test has failed."""
        for copier in self.copiers.values():
            with contextlib.suppress(AssertionError):
                copier.kill()
        for crew in self.crews.values():
            crew.end()
            for member in crew.all:
                print(crew.strategy, member.kind, len(member.records), member.events)
        for log in sorted(self.directory.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-SHOWN_OF_LOGS:]}")

    def assert_all_is_there_once(self, written: int) -> None:
        for protocol, crew in self.crews.items():
            assert_all_is_processed(crew, self.watches[protocol].ends(), REPEATING[protocol])
        for target in TARGETS.values():
            read = read_committed(self.bootstrap, target, PARTITIONS)
            for partition in range(PARTITIONS):
                wanted = [f"copy of {each}" for each in range(partition, written, PARTITIONS)]
                assert_same(read[partition], wanted, f"{target} {partition}")


@contextlib.contextmanager
def everybody_at_work(
    bootstrap: str, groups: Mapping[str, str], programs: Programs, directory: Path
) -> Iterator[Everybody]:
    """At the end each member has processed each record of its group once, and each copier has copied each once and in
    order.
    """
    everybody = Everybody(bootstrap, groups, programs, directory)
    try:
        everybody.start()
        numbers = Numbers(bootstrap, TOPIC, PARTITIONS, PER_SECOND)
        try:
            everybody.until_all_work()
            yield everybody
            everybody.until_all_work()
        finally:
            numbers.stop()
        written = numbers.finish()
        everybody.until_all_is_done()
    finally:
        everybody.end()
    everybody.assert_all_is_there_once(written)
