"""The invariants of access that changes: each finds a history that breaks it, and accepts the nearest one that does
not."""

from __future__ import annotations

import pytest

from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.access_history import (
    AccessStored,
    Admission,
    Key,
    PasswordChange,
    Pattern,
    Reach,
    Rule,
    RuleChange,
    Visit,
)
from tests.simulation.access_invariants import LONGEST_NEWS_S
from tests.simulation.access_watch import differences
from tests.simulation.checker import INVARIANTS
from tests.simulation.final_state import FinalState, ReplicaLog, StoredBatch
from tests.simulation.history import Outcome, Started
from tests.simulation.missteps import Finding, Misstep
from tests.simulation.scenes import Scene
from tests.simulation.topic_invariants import LATE_US

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
ACCESS = ("rules", "passwords", "unwritten", "stored", "known")
GUARDED, PREFIX, OTHER = Pattern("guarded"), Pattern("guard", is_prefixed=True), Pattern("guarded-", is_prefixed=True)
NEWS_US = round(LONGEST_NEWS_S * 1e6)


def rule(operation: str = "ALL", permission: str = "ALLOW", *, user: str = "guest", host: str = "*") -> Rule:
    return Rule(f"User:{user}", host, operation, permission)


class Access(Scene):
    """What happens to the access of one guest."""

    def change(
        self, key: Key, *wanted: Rule | str, adds: bool = True, broker_id: int = 1, outcome: Outcome = OK
    ) -> None:
        """Changes rules, or the password of a user; the store has it while the change is under way."""
        for each in wanted:
            change: RuleChange | PasswordChange
            if isinstance(key, Pattern) and isinstance(each, Rule):
                change = RuleChange(process="keeper", pattern=key, rule=each, adds=adds, broker_id=broker_id)
            else:
                change = PasswordChange(process="keeper", user=str(key), password=str(each), broker_id=broker_id)
            self.begin(change)
            self.store(key, *wanted)
            self.end(change, outcome)

    def store(self, key: Key, *value: Rule | str) -> None:
        """The store has another value."""
        content = frozenset(each for each in value if isinstance(each, Rule))
        self.add(AccessStored(process="store", key=key, value=content if isinstance(key, Pattern) else str(value[0])))

    def visit(
        self, outcome: Outcome, operation: str = "WRITE", broker_id: int = 1, text: str = "", *, is_open: bool = False
    ) -> None:
        """The guest asks a broker."""
        visit = Visit(
            process="guest",
            user="guest",
            host="10.0.4.2",
            broker_id=broker_id,
            operation=operation,
            topic="guarded",
            records=(text,) if text else (),
            is_open=is_open,
        )
        self.add(visit, outcome)

    def log_in(self, outcome: Outcome, password: str, broker_id: int = 1) -> None:
        """The visitor logs in."""
        self.add(Admission(process="visitor", user="visitor", password=password, broker_id=broker_id), outcome)

    def reach(self, broker_id: int, *, is_in_reach: bool) -> None:
        """News can, or cannot, reach a broker."""
        self.add(Reach(process="store", broker_id=broker_id, is_in_reach=is_in_reach))

    def wait(self) -> None:
        """Waits for longer than news may take."""
        self.now_us += NEWS_US + 10

    def violated(self, final: FinalState | None = None) -> list[str]:
        return [each.invariant for name in ACCESS for each in INVARIANTS[name](self.history, final or FinalState())]


@pytest.fixture
def access() -> Access:
    return Access()


# --- rules


def test_the_broker_that_has_confirmed_a_rule_answers_by_it(access: Access) -> None:
    access.visit(FAILED)
    access.change(GUARDED, rule(), broker_id=1)
    access.visit(OK, broker_id=1)
    access.visit(FAILED, broker_id=2)  # it may not have heard of it
    access.visit(OK, broker_id=2)
    assert access.violated() == []
    access.visit(FAILED, broker_id=1)
    assert access.violated() == ["rules"]


def test_who_has_started_since_answers_by_it_too(access: Access) -> None:
    access.change(GUARDED, rule())
    access.visit(FAILED, broker_id=2)
    assert access.violated() == []
    access.add(Started(process="broker-2", broker_id=2))
    access.visit(FAILED, broker_id=2)
    assert access.violated() == ["rules"]


@pytest.mark.parametrize("is_reached", [True, False])
def test_news_take_their_time_to_brokers_in_reach(access: Access, is_reached: bool) -> None:
    access.reach(2, is_in_reach=True)
    access.change(GUARDED, rule())
    access.visit(FAILED, broker_id=2)
    access.wait()
    if not is_reached:
        access.reach(2, is_in_reach=False)
        access.reach(2, is_in_reach=True)
    access.visit(FAILED, broker_id=2)
    assert access.violated() == (["rules"] if is_reached else [])


def test_what_no_rule_allows_is_not_permitted(access: Access) -> None:
    for mine in (rule("READ"), rule(host="10.0.4.3"), rule(user="visitor")):
        access.change(GUARDED, mine, adds=True)
        access.change(GUARDED, adds=False)
        access.store(GUARDED)
    access.change(OTHER, rule())
    access.visit(FAILED)
    assert "rules" not in access.violated()
    access.visit(OK)
    assert access.violated().count("rules") == 1


def test_a_denial_comes_before_what_is_allowed(access: Access) -> None:
    access.change(GUARDED, rule())
    access.change(PREFIX, rule("WRITE", "DENY"))
    access.visit(FAILED, "WRITE")
    access.visit(OK, "READ")
    assert access.violated() == []
    access.visit(OK, "WRITE")
    assert access.violated() == ["rules"]


def test_an_open_topic_is_closed_by_any_rule(access: Access) -> None:
    access.visit(OK, is_open=True)
    access.change(OTHER, rule())
    access.visit(OK, is_open=True)
    assert access.violated() == []
    access.change(GUARDED, rule(user="visitor"))
    access.visit(FAILED, is_open=True)
    assert access.violated() == []
    access.visit(OK, is_open=True)
    assert access.violated() == ["rules"]


# --- passwords


def test_the_password_that_counts_is_the_last_one(access: Access) -> None:
    access.log_in(FAILED, "a")
    access.change("visitor", "a")
    access.log_in(OK, "a")
    access.change("visitor", "b")
    access.log_in(FAILED, "a")
    access.log_in(OK, "b")
    access.log_in(OK, "a", broker_id=2)
    assert access.violated() == []
    access.log_in(OK, "a")
    assert access.violated() == ["passwords"]
    access.log_in(FAILED, "b")
    assert access.violated() == ["passwords", "passwords"]


def test_who_has_lost_a_password_is_not_admitted(access: Access) -> None:
    access.change("visitor", "a")
    access.change("visitor", "")
    access.log_in(FAILED, "a")
    assert access.violated() == []
    access.log_in(OK, "a")
    assert access.violated() == ["passwords"]


# --- what is denied


def final_with(text: str) -> FinalState:
    partition = TopicPartition("guarded", 0)
    batch = StoredBatch(0, 0, 1, build_batch([Record(value=text.encode())]))
    return FinalState(logs={partition: ReplicaLog(partition=partition, broker_id=1, high_watermark=1, batches=[batch])})


def test_what_is_denied_is_in_no_log(access: Access) -> None:
    access.visit(FAILED, "WRITE", text="guest:1")
    access.visit(UNKNOWN, "WRITE", text="guest:2")
    assert access.violated(final_with("guest:2")) == []
    assert access.violated(final_with("guest:1")) == ["unwritten"]


def test_nobody_reads_what_is_denied(access: Access) -> None:
    access.visit(FAILED, "WRITE", text="guest:1")
    access.visit(UNKNOWN, "READ", text="guest:2")
    assert access.violated() == []
    access.visit(UNKNOWN, "READ", text="guest:1")
    assert access.violated() == ["unwritten"]


# --- the store


def test_a_confirmed_change_is_in_the_store(access: Access) -> None:
    access.change(GUARDED, rule())
    access.add(RuleChange(process="keeper", pattern=GUARDED, rule=rule(), adds=True, broker_id=2))
    assert access.violated() == []
    access.add(RuleChange(process="keeper", pattern=GUARDED, rule=rule(), adds=False, broker_id=2))
    assert access.violated() == ["stored"]
    access.add(PasswordChange(process="keeper", user="visitor", password="a", broker_id=2), UNKNOWN)
    assert access.violated() == ["stored"]


def test_the_store_has_what_was_asked_for(access: Access) -> None:
    access.add(RuleChange(process="keeper", pattern=GUARDED, rule=rule(), adds=True, broker_id=1), UNKNOWN)
    access.now_us += LATE_US // 2
    access.store(GUARDED, rule())
    assert access.violated() == []
    access.store(GUARDED)
    assert access.violated() == ["stored"]


def test_a_change_without_an_answer_does_not_come_too_late(access: Access) -> None:
    access.add(PasswordChange(process="keeper", user="visitor", password="a", broker_id=1), UNKNOWN)
    access.now_us += LATE_US + 10
    access.store("visitor", "a")
    assert access.violated() == ["stored"]


# --- what brokers know


def test_in_the_end_brokers_know_what_the_store_has(access: Access) -> None:
    stored = {"rules of LITERAL TOPIC guarded": frozenset({rule()})}
    assert access.violated(FinalState(access={1: dict(stored), 2: dict(stored)}, stored_access=stored)) == []
    assert access.violated(FinalState(access={1: dict(stored), 2: {}}, stored_access=stored)) == ["known"]
    assert access.violated(FinalState(access={1: dict(stored)})) == ["known"]


def test_what_a_broker_has_not_heard_is_named() -> None:
    has, lost = rule("READ"), rule("WRITE")
    assert [each.text for each in differences(GUARDED, frozenset({has}), frozenset({lost}))] == [
        "guarded has the rule ALLOW User:guest from * READ",
        "guarded has lost the rule ALLOW User:guest from * WRITE",
    ]
    assert [each.text for each in differences("visitor", "b", "a")] == ["visitor has the password 'b', not 'a'"]


def test_what_a_broker_has_not_heard_for_long_is_found(access: Access) -> None:
    access.add(Misstep(process="store", finding=Finding("known", "broker 1 has not heard of it")))
    assert access.violated() == ["known"]
