"""Fetches of very many partitions are read in steps. All that holds for other fetches holds for them."""

from __future__ import annotations

import pytest

from odradek.broker.background.stepwise import Steps, finished
from odradek.broker.replica.fetch import running_fetch
from odradek.broker.replica.fetch.fetch_session import FetchTarget
from odradek.broker.replica.fetch.fetch_session_cache import FetchContext
from odradek.broker.replica.fetch.log_reader import FetchParams, FetchRead
from odradek.broker.replica.fetch.running_fetch import TARGETS_AT_ONCE, FetchResponder, RunningFetch
from odradek.broker.requests.request_context import PendingResponse
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.replica.harness import ReplicaHarness, context_of
from tests.broker.replica.test_fetch_sessions import TestFollowers, TestIncrementalAnswers, TestWaiting
from tests.broker.replica.test_fetching import TestColdReads
from tests.broker.replica.test_follower_sessions import TestInSync, TestVisits, follower, partitions, visits

__all__ = [
    "TestColdReads",
    "TestFollowers",
    "TestInSync",
    "TestIncrementalAnswers",
    "TestVisits",
    "TestWaiting",
    "follower",
    "partitions",
    "visits",
]

KEYS = [TopicPartition("many", number) for number in range(TARGETS_AT_ONCE + 1)]


@pytest.fixture(autouse=True)
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All fetches are long."""
    monkeypatch.setattr(running_fetch, "TARGETS_AT_ONCE", 0)


def targets() -> list[FetchTarget]:
    return [FetchTarget(key, 0, 1 << 20) for key in KEYS]


def steps_of(harness: ReplicaHarness) -> Steps[FetchRead]:
    context = FetchContext({target.key: target for target in targets()})
    running = RunningFetch(harness.manager.fetches, FetchParams(12), context, context_of(12), FetchResponder())
    return running._steps(context.targets())


def test_other_tasks_run_between_the_partitions(harness: ReplicaHarness) -> None:
    assert sum(1 for _ in steps_of(harness)) >= len(KEYS) // 100


def test_each_partition_is_read_as_it_is_at_its_turn(harness: ReplicaHarness) -> None:
    harness.lead(KEYS[0])
    steps = steps_of(harness)
    next(steps)
    for key in (KEYS[0], KEYS[-1]):
        if key == KEYS[-1]:
            harness.lead(key)
        harness.produce(key=key)
    found = {target.topic_partition: data for target, data in finished(steps).results}
    assert list(found) == KEYS
    assert not found[KEYS[0]].records
    assert found[KEYS[-1]].records
    assert found[KEYS[1]].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unexpected_error_fails_the_request(harness: ReplicaHarness) -> None:
    """FetchResponder itself makes no responses."""
    context = FetchContext({target.key: target for target in targets()})
    running = RunningFetch(harness.manager.fetches, FetchParams(12), context, context_of(12), FetchResponder())
    pending = running.begin()
    assert isinstance(pending, PendingResponse)
    with pytest.raises(NotImplementedError):
        pending.result()
