"""Whole simulations: brokers under faults, the same trace from the same seed, and the command line."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog

from odradek.broker.coordinator.transaction.transaction_state import IN_THE_LOG
from odradek.broker.security.sasl.plain import PLAIN
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.consumer_groups import CONSUMER_GROUPS
from tests.simulation.faults import Fault
from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, History, Initialised, Outcome, Send, Synced, Transaction
from tests.simulation.intruders import INTRUDERS
from tests.simulation.login_history import Attempt, LoggedIn
from tests.simulation.many import report_of
from tests.simulation.membership_history import GaveUp, StrayBeat
from tests.simulation.membership_history import Told as ToldOfGroup
from tests.simulation.report import quieten
from tests.simulation.rivals import RIVALS
from tests.simulation.run import fewest, main, run_all, run_one
from tests.simulation.security import ADMINISTRATORS, BROKERS, CLIENTS, STRANGERS, security_of
from tests.simulation.store_history import Applied, Named, Owned, StoreChange, StoreRead, TooLong
from tests.simulation.transaction_history import BriefCommit, Identified, LateWrite, Logged, Stray
from tests.simulation.upkeep_history import Move, SettingChange
from tests.simulation.violation import Violation
from tests.simulation.workload import BALANCES, BALANCES_PARTITIONS
from tests.simulation.world import Result, Scale, World

SMALL = Scale(faults=6, seconds=15.0)
CLUSTER = Scale(brokers=3, faults=6, seconds=12.0)
SECURED = next(seed for seed in count(1) if (found := security_of(seed)) and found.mechanism != PLAIN)
"""The first seed with logins by SCRAM."""
SEEDS = pytest.mark.parametrize(
    "seed",
    [pytest.param(1, id="without security", marks=pytest.mark.long), pytest.param(SECURED, id="with logins by SCRAM")],
)
FIRST_AIMED = ("join unheard", "lose an answer of the store", "delay requests of the controller")
AIMED_AT_REPLICAS = (
    "lose all but who joins",
    "lose two coordinators, with",
    "lose the disk of",
    "miss that the store loses",
)
AIMED_AT_TRANSACTIONS = ("lose who has decided, with", "hold markers, with")
AT_REPLICAS_S = 13.0
AT_TRANSACTIONS_S = 29.0
AIMED = [
    *(Fault(4.0 + 3.0 * number, kind, 1, 0.2, "broker-2", 0.5) for number, kind in enumerate(FIRST_AIMED)),
    *(
        Fault(AT_REPLICAS_S + 4.0 * number, kind, 1 + (number + 2) % 3, 0.2, "broker-1", 0.4)
        for number, kind in enumerate(AIMED_AT_REPLICAS)
    ),
    *(
        Fault(AT_TRANSACTIONS_S + 5.0 * number, kind, 2, 0.2, "broker-1", 0.4)
        for number, kind in enumerate(AIMED_AT_TRANSACTIONS)
    ),
]


class Told(NamedTuple):
    """What came of a world, and the lines of its trace."""

    result: Result
    lines: list[str]

    def moments(self, from_s: float, until_s: float = math.inf) -> int:
        """How many faults have hit their moments in a time."""
        came = (float(line.split()[0]) for line in self.lines if " moment came " in line)
        return sum(from_s <= at_s < until_s for at_s in came)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    quieten(logging.CRITICAL)
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def run() -> Callable[[int, Scale], Result]:
    """Runs each world once."""

    def run_without_threads(seed: int, scale: Scale) -> Result:
        threads = threading.active_count()
        result = run_one(seed, scale)
        assert threading.active_count() == threads, "the simulation has no threads"
        return result

    return cache(run_without_threads)


@pytest.fixture(scope="module")
def told() -> Told:
    """Three brokers with security under all aimed faults."""
    lines = io.StringIO()
    result = World(SECURED, scale=Scale(brokers=3, seconds=46.0), faults=AIMED, lines=lines).run()
    return Told(result, lines.getvalue().splitlines())


@SEEDS
@pytest.mark.parametrize("scale", [SMALL, CLUSTER], ids=["one broker", "three brokers"])
def test_brokers_under_faults_keep_their_promises(run: Callable[[int, Scale], Result], scale: Scale, seed: int) -> None:
    result = run(seed, scale)
    assert result.violations == []
    assert result.failures == []
    assert result.acknowledged_records > 800
    assert result.produce_requests > 200
    assert result.transactions > 5
    assert result.hits >= 5
    assert any(attempt.outcome is Outcome.FAILED for attempt in result.history.of(Attempt)) is (seed == SECURED)


def digest_elsewhere(seed: int) -> str:
    """In a process with other hashes."""
    replay = f"""
import tests.conftest
from tests.simulation.run import main
main(["--replay", "{seed}", "--brokers", "3", "--faults", "{CLUSTER.faults}", "--seconds", "{CLUSTER.seconds}"])
"""
    found = subprocess.run(
        [sys.executable, "-c", replay],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    line = re.search(r"^seed \d+: passed.* (\w+)$", found.stdout, re.MULTILINE)
    assert line is not None, found.stdout
    return line[1]


@SEEDS
def test_the_same_seed_gives_the_same_trace_whatever_the_hashes_are(
    run: Callable[[int, Scale], Result], seed: int
) -> None:
    assert run(seed, CLUSTER).digest == digest_elsewhere(seed)


@pytest.mark.long
def test_aimed_faults_hit_their_moments(told: Told) -> None:
    assert told.result.violations == []
    assert told.result.failures == []
    assert told.moments(0.0, AT_REPLICAS_S) >= len(FIRST_AIMED)


@pytest.mark.long
def test_faults_aimed_at_replicas_hit_their_moments(told: Told) -> None:
    assert told.result.violations == []
    assert told.moments(AT_REPLICAS_S, AT_TRANSACTIONS_S) >= 2
    assert sum(" empty disk " in line for line in told.lines) == 1
    assert any(" connection to the store breaks broker-" in line for line in told.lines)


@pytest.mark.long
def test_faults_aimed_at_transactions_hit_their_moments(told: Told) -> None:
    assert told.result.violations == []
    assert told.moments(AT_TRANSACTIONS_S) >= len(AIMED_AT_TRANSACTIONS)
    assert any(" held markers " in line for line in told.lines)


@pytest.mark.long
def test_every_client_does_its_work(told: Told) -> None:
    """Invariants about what nobody does would always hold."""
    result = told.result
    assert result.violations == []
    history = result.history
    rivals = {each.process for each in history.of(Initialised) if each.transactional_id == RIVALS}
    assert len(rivals) > 3
    assert any(each.outcome is Outcome.FAILED for each in history.of(Transaction) if each.process in rivals)
    assert any(each.outcome is Outcome.FAILED for each in history.of(Commit) if each.generation >= 0)
    for often in (StoreRead, StoreChange, Move, SettingChange):
        assert sum(each.outcome is Outcome.OK for each in history.of(often)) > 5, often
    for answered in (Identified, Stray, StrayBeat, BriefCommit, LateWrite):
        assert any(each.outcome is not Outcome.UNKNOWN for each in history.of(answered)), answered
    assert {each.state for each in history.of(Logged)} >= IN_THE_LOG, "transactions had all states"
    for kind in (Applied, Owned, Named, TooLong, Synced):
        assert any(history.of(kind)), kind
    for group in CONSUMER_GROUPS:
        assert any(each.partitions for each in history.of(ToldOfGroup) if each.group == group), group
        assert any(each.group == group for each in history.of(GaveUp)), group
    assert any(each.decided_epoch > 0 and each.outcome is Outcome.OK for each in history.of(Transaction))


@pytest.mark.long
def test_the_topic_of_keyed_records_is_compacted() -> None:
    result = run_one(1, Scale(brokers=3))
    assert result.violations == []
    for partition in (TopicPartition(BALANCES, number) for number in range(BALANCES_PARTITIONS)):
        sent = sum(len(send.records) for send in result.history.of(Send) if send.partition == partition)
        assert len(result.final.logs[partition].records) < 0.75 * sent, partition


@pytest.mark.long
def test_clients_log_in_again_and_intruders_are_refused_in_all_their_ways(told: Told) -> None:
    assert told.result.violations == []
    history = told.result.history
    logins = [login for login in history.of(LoggedIn) if login.outcome is Outcome.OK]
    assert {login.user for login in logins} == {BROKERS, ADMINISTRATORS, CLIENTS, STRANGERS}
    assert sum(login.is_renewal for login in logins) > 20
    refused = Counter(attempt.process for attempt in history.of(Attempt) if attempt.outcome is Outcome.FAILED)
    assert refused.keys() == set(INTRUDERS)
    assert min(refused.values()) > 5
    for what in ("write", "read", "follow", "commit", "fence", "delete", "give", "ask after", "keep its session"):
        assert any(attempt.what.startswith(what) for attempt in history.of(Attempt)), what


def test_another_seed_gives_another_trace() -> None:
    short = Scale(faults=0, seconds=2.0)
    assert run_one(1, short).digest != run_one(2, short).digest


class Forgetful(World):
    """A cluster that is said to have acknowledged a record, and does not have it."""

    def __init__(self, seed: int, *, scale: Scale, faults: Sequence[Fault] | None = None) -> None:
        super().__init__(seed, scale=scale, faults=faults)
        self.history.note(Send(process="nobody", partition=self.workload.partitions[0], records=("nobody:1",)))


def test_a_failing_seed_prints_the_history_around_the_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.simulation.many.World", Forgetful)
    assert run_all([report_of(5, Scale(faults=1, seconds=2))]) == 1
    printed = capsys.readouterr().out
    assert "seed 5: FAILED" in printed
    assert "kept: nobody:1 was acknowledged, and is not in the log of orders-0" in printed
    assert "nobody: send nobody:1 to orders-0 acks=-1: ok" in printed


def test_a_directory_is_not_judged_while_another_fault_breaks_the_whole_disk() -> None:
    faults = [
        Fault(3.0, "break the writes of", 2, seconds=1.5),
        Fault(3.2, "fail a directory of", 2, seconds=0.5, amount=0.45),
    ]
    assert run_one(1, CLUSTER, faults).has_passed


def test_shrinking_leaves_the_faults_that_are_needed() -> None:
    faults = [Fault(float(number), "kill", 1, 0.1) for number in range(13)]
    needed = [faults[2], faults[11]]
    assert fewest(faults, lambda fewer: all(fault in fewer for fault in needed)) == needed
    assert fewest(faults, lambda fewer: True) == []


def test_shrinking_tries_single_faults_again_until_none_can_be_removed() -> None:
    first, second, third = (Fault(float(number), "kill", 1, 0.1) for number in range(3))
    failing = ([first, second, third], [first, second], [second])
    assert fewest([first, second, third], lambda fewer: fewer in failing) == [second]


def test_shrinking_keeps_to_the_invariant_that_was_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the cut, the kill breaks another invariant: that would be another bug."""
    kill, cut, pause = (Fault(at_s, kind, 1, 0.1) for at_s, kind in enumerate(("kill", "cut off", "pause"), 1))

    def run(seed: int, scale: Scale, faults: Sequence[Fault] = (kill, cut, pause), trace: Path | None = None) -> Result:
        broken = [] if kill not in faults else ["kept"] if cut in faults else ["read once"]
        return Result(
            seed=seed,
            digest="",
            events=0,
            violations=[Violation(invariant, "it is broken") for invariant in broken],
            history=History(),
            final=FinalState(),
            faults=faults,
            hits=0,
            acknowledged_records=0,
            produce_requests=0,
            transactions=0,
            records_read=0,
            seconds=0.0,
        )

    monkeypatch.setattr("tests.simulation.run.run_one", run)
    assert main(["--shrink", "7"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "seed 7 breaks ['kept'] with 3 faults"
    assert printed[-3:] == [f"    {kill}", f"    {cut}", "    kept: it is broken"]


def run_with_duplicates(*options: str) -> str:
    """A bug is planted in sources, not in compiled modules."""
    command = [sys.executable, "-m", "tests.simulation", "--brokers", "3", "--faults", "12", "--seconds", "20"]
    ended = subprocess.run(
        [*command, "--bug", "append duplicates", *options],
        env={**os.environ, "ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    return ended.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_planted_bug_shrinks_to_few_faults_and_replays_with_the_history_around_it() -> None:
    found = re.search(r"^seed (\d+): FAILED.* (\w+)$", run_with_duplicates("--seeds", "1-30"), re.MULTILINE)
    assert found is not None
    seed, digest = found.groups()

    replayed = run_with_duplicates("--replay", seed)
    assert f" {digest}\n" in replayed
    assert "the history around" in replayed
    assert replayed == run_with_duplicates("--replay", seed)

    shrunk = run_with_duplicates("--shrink", seed)
    assert re.search(r"^[0-4] faults are enough$", shrunk, re.MULTILINE), shrunk
    assert "the history around" in shrunk


def test_there_is_nothing_to_shrink_in_a_seed_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shrink", "5", "--faults", "1", "--seconds", "2"]) == 0
    assert capsys.readouterr().out == "seed 5 passes\n"


def test_a_history_is_a_table_that_people_can_read() -> None:
    history = History()
    send = history.begin(Send(process="p", partition=World(1).workload.partitions[0], records=("p:1", "p:2", "p:3")))
    history.end(send, Outcome.UNKNOWN, "no answer")
    assert str(send).strip() == ("0.000000   0.000000 p: send p:1 .. p:3 (3) to orders-0 acks=-1: unknown (no answer)")
