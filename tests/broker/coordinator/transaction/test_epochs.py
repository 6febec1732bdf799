"""Transactions of version 2 (KIP-890): an epoch for each, repeated EndTxn, and the end of the epochs of an id."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.coordinator.transaction import rules
from odradek.broker.coordinator.transaction.records import read_transaction
from odradek.broker.coordinator.transaction.timeouts import abort_timed_out
from odradek.broker.coordinator.transaction.transaction import (
    LARGEST_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    Transit,
)
from odradek.broker.coordinator.transaction.transaction_state import BY_LABEL
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.transaction_records import TransactionLogValue
from tests.broker.coordinator.transaction.harness import MINUTE_MS, ORDERS, RETURNS, TransactionHarness

ID, OTHER_ID = 7, 8
E = 5
LAST = LARGEST_EPOCH - 1
"""The last epoch of a client."""

NONE, FENCED, UNMAPPED, BUSY, INVALID = (
    ErrorCode.NONE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
)


@pytest.fixture
def harness() -> TransactionHarness:
    harness = TransactionHarness()
    harness.transaction_version = 2
    return harness


def in_state(label: str, epoch: int = E, previous_id: int = ID, version: int = 2) -> Transaction:
    """A transaction of producer ID in a state, without a pending change."""
    transaction = Transaction("t", ID, MINUTE_MS, 1)
    state = BY_LABEL[label]
    partitions = frozenset({ORDERS}) if label in ("Ongoing", "PrepareCommit", "PrepareAbort") else frozenset()
    transit = Transit(state, ID, -1, epoch, -1, MINUTE_MS, partitions, 1, 1, previous_id, client_version=version)
    transaction.take(transit)
    return transaction


def ended(transaction: Transaction, producer: ProducerIdAndEpoch, committed: bool, new_id: int | None = None) -> Any:
    """What EndTxn of version 2 leads to: (state, epoch), the producer of a retry, or an error code."""
    try:
        outcome = rules.end(transaction, producer, committed, 9, 2, new_id)
    except ProtocolError as error:
        return error.code
    if isinstance(outcome, rules.Retried):
        return tuple(outcome)
    return outcome.state.label, outcome.producer_epoch


# The table of EndTxn

ABORTS, COMMITS = ("PrepareAbort", E + 1), ("PrepareCommit", E + 1)
TABLE: dict[str, tuple[Any, Any, Any, Any]] = {
    "Ongoing": (ABORTS, COMMITS, FENCED, FENCED),
    "Empty": (ABORTS, INVALID, FENCED, FENCED),
    "CompleteAbort": (ABORTS, INVALID, (ID, E), INVALID),
    "CompleteCommit": (ABORTS, INVALID, INVALID, (ID, E)),
    "PrepareAbort": (FENCED, FENCED, BUSY, INVALID),
    "PrepareCommit": (FENCED, FENCED, INVALID, BUSY),
}
"""By state with epoch E: abort and commit with epoch E, and with E - 1."""


@pytest.mark.parametrize("state", TABLE)
def test_the_state_and_the_epoch_decide_what_end_txn_does(state: str) -> None:
    attempts = [(E, False), (E, True), (E - 1, False), (E - 1, True)]
    outcomes = [ended(in_state(state), ProducerIdAndEpoch(ID, epoch), committed) for epoch, committed in attempts]
    assert tuple(outcomes) == TABLE[state]


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("committed", [True, False])
def test_a_fenced_producer_does_not_get_the_epoch_of_its_successor(state: str, committed: bool) -> None:
    """The successor, whose transaction is of an earlier version, has kept its epoch at the end."""
    assert ended(in_state(state, version=0), ProducerIdAndEpoch(ID, E - 1), committed) is FENCED


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("epoch", [0, E - 2, E + 1, LAST, LARGEST_EPOCH])
def test_every_other_epoch_is_fenced(state: str, epoch: int) -> None:
    for committed in (True, False):
        assert ended(in_state(state), ProducerIdAndEpoch(ID, epoch), committed) is FENCED


@pytest.mark.parametrize("state", TABLE)
def test_another_producer_id_has_no_transaction(state: str) -> None:
    assert ended(in_state(state), ProducerIdAndEpoch(OTHER_ID, E), False) is UNMAPPED
    with pytest.raises(ProtocolError) as caught:
        rules.end(None, ProducerIdAndEpoch(ID, E), False, 9, 2)
    assert caught.value.code is UNMAPPED


@pytest.mark.parametrize("state", TABLE)
def test_a_pending_change_comes_before_the_producer(state: str) -> None:
    transaction = in_state(state)
    transaction.pending = BY_LABEL["CompleteAbort"]
    for producer in (ProducerIdAndEpoch(ID, E), ProducerIdAndEpoch(OTHER_ID, 0)):
        assert ended(transaction, producer, False) is BUSY
        with pytest.raises(ProtocolError) as caught:
            rules.add_partitions(transaction, producer, {ORDERS}, 9, 2)
        assert caught.value.code is BUSY


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        ("CompleteAbort", (ID, 0), INVALID),
        ("CompleteCommit", INVALID, (ID, 0)),
        ("Empty", FENCED, FENCED),
        ("Ongoing", FENCED, FENCED),
    ],
)
def test_the_last_epoch_of_the_previous_id_repeats_the_end_that_led_to_this_id(
    state: str, abort: Any, commit: Any
) -> None:
    last = ProducerIdAndEpoch(OTHER_ID, LAST)
    assert ended(in_state(state, 0, OTHER_ID), last, False) == abort
    assert ended(in_state(state, 0, OTHER_ID), last, True) == commit
    assert ended(in_state(state, 1, OTHER_ID), last, False) is UNMAPPED, "the producer has gone on"
    assert ended(in_state(state, 0, OTHER_ID), last._replace(producer_epoch=LAST - 1), False) is UNMAPPED


@pytest.mark.parametrize(
    ("epoch", "needs_id", "prepared"),
    [(LAST - 1, False, LAST), (LAST, True, LARGEST_EPOCH), (LARGEST_EPOCH, True, LARGEST_EPOCH)],
)
def test_a_new_id_is_taken_before_the_last_epoch_ends(epoch: int, needs_id: bool, prepared: int) -> None:
    """The largest epoch is broken: no client should have it. Its transaction can be aborted nevertheless."""
    producer = ProducerIdAndEpoch(ID, epoch)
    if needs_id:
        with pytest.raises(rules.ProducerIdNeeded):
            rules.end(in_state("Ongoing", epoch), producer, False, 9, 2)
    transit = rules.end(in_state("Ongoing", epoch), producer, False, 9, 2, OTHER_ID)
    assert isinstance(transit, Transit)
    assert (transit.producer_id, transit.producer_epoch) == (ID, prepared)
    assert transit.next_producer == ((OTHER_ID, 0) if needs_id else (ID, LAST))


# Whole transactions


def test_the_end_raises_the_epoch_and_the_marker_bears_the_next_one(harness: TransactionHarness) -> None:
    producer = harness.init()
    for committed in (True, False, True):
        assert harness.add(producer, ORDERS, RETURNS, client_version=2) is NONE
        following = harness.end_epoch(producer, committed)
        assert following == producer._replace(producer_epoch=producer.producer_epoch + 1)
        assert [harness.markers[key][-1] for key in (ORDERS, RETURNS)] == [(following, committed, 0)] * 2
        assert harness.end_epoch(producer, committed) == following, "the response was lost"
        assert harness.end_epoch(producer, not committed) is INVALID
        producer = following
    assert harness.end_epoch(producer, True) is INVALID
    assert set(harness.marker_versions) == {2}


def test_a_transaction_of_nothing_can_be_aborted(harness: TransactionHarness) -> None:
    producer = harness.init()
    for _ in range(2):
        harness.clock.advance(5)
        producer = harness.end_epoch(producer, False)
        assert (harness.state(), harness.transaction().start_ms) == ("CompleteAbort", harness.clock.wall_ms())
    assert producer.producer_epoch == 2
    assert harness.markers == {}


def test_the_next_transaction_waits_for_the_markers_of_the_last(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, client_version=2)
    harness.markers_held = True
    following = harness.end_epoch(producer)
    assert harness.add(following, client_version=2) is BUSY
    assert harness.end_epoch(producer) is BUSY
    harness.markers_held = False
    harness.release_markers()
    assert harness.add(following, client_version=2) is NONE


def test_the_producer_continues_with_a_new_id_where_the_epochs_end(harness: TransactionHarness) -> None:
    first = harness.init()
    harness.transaction().producer_epoch = LAST - 1
    producer = first._replace(producer_epoch=LAST - 1)
    producers = []
    for _ in range(4):
        harness.add(producer, client_version=2)
        following = harness.end_epoch(producer)
        assert harness.end_epoch(producer) == following
        producers.append(following)
        producer = following
    new_id = first.producer_id + 1
    assert producers == [(first.producer_id, LAST), (new_id, 0), (new_id, 1), (new_id, 2)]
    assert [marker.producer for marker in harness.markers[ORDERS]] == [
        (first.producer_id, LAST),
        (first.producer_id, LARGEST_EPOCH),
        (new_id, 1),
        (new_id, 2),
    ]


def test_no_producer_id_means_no_end(harness: TransactionHarness) -> None:
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.add(producer, client_version=2)
    harness.producer_id_failure = ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert harness.end_epoch(producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.state() == "Ongoing"
    harness.producer_id_failure = None
    assert harness.end_epoch(producer) == (producer.producer_id + 1, 0)


def test_an_unwritten_end_changes_nothing(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, client_version=2)
    harness.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.end_epoch(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_failure = None
    assert harness.end_epoch(producer) == producer._replace(producer_epoch=1)


def test_a_producer_that_lost_a_response_may_also_initialize_again(harness: TransactionHarness) -> None:
    """InitProducerId takes the epoch before the end for that of its own lost response."""
    producer = harness.init()
    harness.add(producer, client_version=2)
    following = harness.end_epoch(producer)
    assert harness.init(expected=producer) == following
    assert harness.init(expected=following) == following._replace(producer_epoch=2)


# Fences


def test_a_new_producer_fences_with_one_epoch(harness: TransactionHarness) -> None:
    old = harness.init()
    harness.add(old, client_version=2)
    assert harness.init() is BUSY
    assert harness.markers[ORDERS] == [(old._replace(producer_epoch=1), False, 0)]
    new = harness.init()
    assert new == old._replace(producer_epoch=2)
    assert harness.end_epoch(old) is FENCED
    assert harness.add(old, client_version=2) is FENCED


def test_a_producer_whose_transaction_timed_out_aborts_it_and_goes_on(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, client_version=2)
    harness.clock.advance(MINUTE_MS + 1)
    assert abort_timed_out(harness.coordinator, harness.clock.wall_ms()) == 1
    assert harness.add(producer, client_version=2) is FENCED
    assert harness.end_epoch(producer, True) is INVALID
    following = harness.end_epoch(producer, False)
    assert following == producer._replace(producer_epoch=1)
    assert harness.add(following, client_version=2) is NONE


def test_a_fence_that_is_not_written_leaves_nothing(harness: TransactionHarness) -> None:
    old = harness.init()
    harness.add(old, client_version=2)
    harness.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert harness.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.transaction().producer_epoch, harness.transaction().failed_fence) == (0, False)
    harness.append_failure = None
    assert harness.init() is BUSY
    assert harness.transaction().producer_epoch == 1


@pytest.mark.parametrize("epoch", [LAST - 2, LAST - 1, LAST, LARGEST_EPOCH])
def test_a_fence_raises_the_epoch_once_and_takes_a_new_id_where_the_epochs_end(
    harness: TransactionHarness, epoch: int
) -> None:
    first = harness.init()
    harness.transaction().producer_epoch = epoch
    harness.transaction().state = BY_LABEL["Ongoing"]
    harness.transaction().partitions = frozenset({ORDERS})
    harness.transaction().start_ms = 1
    assert harness.init() is BUSY
    (marker,) = harness.markers[ORDERS]
    assert marker.producer == (first.producer_id, min(epoch + 1, LARGEST_EPOCH))
    found = harness.transaction()
    if epoch < LAST:
        assert (found.producer_id, found.producer_epoch) == (first.producer_id, epoch + 1)
    else:
        assert (found.producer_id, found.producer_epoch) == (first.producer_id + 1, 0)
    assert harness.init().producer_epoch in (LAST, 0, 1)


def test_nothing_else_happens_while_a_fence_waits_for_a_producer_id(harness: TransactionHarness) -> None:
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.add(producer, client_version=2)
    harness.producer_ids_held = True
    assert harness.init() is None
    assert harness.transaction().pending is BY_LABEL["PrepareEpochFence"]
    assert harness.add(producer, RETURNS, client_version=2) is BUSY
    assert harness.end_epoch(producer) is BUSY
    assert harness.init() is BUSY
    harness.release_producer_ids()
    assert (harness.state(), harness.transaction().producer_epoch) == ("CompleteAbort", 0)
    assert len(harness.markers[ORDERS]) == 1


def test_a_fence_without_a_producer_id_is_given_up(harness: TransactionHarness) -> None:
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.add(producer, client_version=2)
    harness.producer_id_failure = ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert harness.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.producer_id_failure = None
    assert harness.end_epoch(producer) == (producer.producer_id + 1, 0)


def test_a_fence_that_waits_for_a_producer_id_ends_with_the_leadership(harness: TransactionHarness) -> None:
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.add(producer, client_version=2)
    harness.producer_ids_held = True
    answers: list[Any] = []
    harness.coordinator.init_producer_id("t", MINUTE_MS, None, answers.append)
    harness.lose_leadership()
    harness.release_producer_ids()
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR]


# Old and new clients, and the level of the feature


def epochs_and_versions(harness: TransactionHarness) -> list[tuple[int, int]]:
    """The epoch and the version of transactions of each marker."""
    epochs = [marker.producer.producer_epoch for marker in harness.markers[ORDERS]]
    return list(zip(epochs, harness.marker_versions, strict=True))


def test_old_and_new_clients_use_one_id_in_turn(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    assert harness.end(producer) is NONE
    assert harness.add(producer, client_version=2) is NONE
    following = harness.end_epoch(producer)
    assert harness.add(following) is NONE
    assert harness.end(following, committed=False) is NONE
    assert harness.end(following, committed=False) is NONE, "a repetition"
    assert epochs_and_versions(harness) == [(0, 0), (1, 2), (1, 0)]


def test_a_transaction_of_one_version_may_end_in_the_other(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    following = harness.end_epoch(producer)
    assert following.producer_epoch == 1
    harness.add(following, client_version=2)
    assert harness.end(following) is NONE
    assert epochs_and_versions(harness) == [(1, 2), (1, 0)]


@pytest.mark.parametrize("when", ["Ongoing", "PrepareCommit", "CompleteCommit"])
@pytest.mark.parametrize("level", [0, 1])
def test_a_downgrade_at_any_time_ends_the_transaction_as_its_client_would(
    harness: TransactionHarness, when: str, level: int
) -> None:
    producer = harness.init()
    harness.add(producer, client_version=2)
    harness.markers_held = when == "PrepareCommit"
    following = producer._replace(producer_epoch=1)
    if when != "Ongoing":
        assert harness.end_epoch(producer) == following
    assert harness.state() == when
    harness.transaction_version = level
    harness.restart()
    harness.markers_held = False
    harness.release_markers()
    if when == "Ongoing":
        assert harness.end_epoch(producer) == following
    assert harness.end_epoch(producer) == following, "a repetition"
    assert harness.markers[ORDERS][-1][:2] == (following, True)
    assert harness.marker_versions[-1] == 2
    assert harness.add(following) is NONE
    assert harness.end(following) is NONE
    assert harness.add(following) is NONE
    assert harness.init() is BUSY
    assert harness.marker_versions[-1] == 0, "the fence is of the level"


# The log


def values(harness: TransactionHarness) -> list[tuple[int, TransactionLogValue]]:
    from odradek.broker.coordinator.runtime.record import decode_value

    return [decode_value(TransactionLogValue, record.value) for record in harness.log if record.value is not None]


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_level_decides_the_version_of_old_clients_records(
    harness: TransactionHarness, level: int, version: int
) -> None:
    harness.transaction_version = level
    producer = harness.init()
    harness.add(producer)
    harness.end(producer)
    assert {found for found, _ in values(harness)} == {version}
    assert {value.client_transaction_version for _, value in values(harness)} == {0}


def test_what_only_the_newer_version_holds_is_written_at_every_level(harness: TransactionHarness) -> None:
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.transaction_version = 0
    harness.add(producer, client_version=2)
    harness.end_epoch(producer)
    assert [
        (
            version,
            value.transaction_status,
            (value.producer_id, value.producer_epoch),
            value.previous_producer_id,
            value.next_producer_id,
            value.client_transaction_version,
        )
        for version, value in values(harness)[1:]
    ] == [
        (1, 1, (1001, LAST), 1001, -1, 2),
        (1, 2, (1001, LARGEST_EPOCH), 1001, 1002, 2),
        (1, 4, (1002, 0), 1001, -1, 2),
    ]


@pytest.mark.parametrize("steps", range(1, 4))
def test_a_coordinator_that_moves_continues_in_every_state(harness: TransactionHarness, steps: int) -> None:
    """After Ongoing, PrepareCommit and CompleteCommit, where the epochs end."""
    producer = harness.init()._replace(producer_epoch=LAST)
    harness.transaction().producer_epoch = LAST
    harness.add(producer, client_version=2)
    if steps > 1:
        harness.markers_held = True
        harness.end_epoch(producer)
    if steps > 2:
        harness.markers_held = False
        harness.release_markers()
    harness.restart()
    harness.markers_held = False
    harness.release_markers()
    following = ProducerIdAndEpoch(producer.producer_id + 1, 0)
    assert harness.end_epoch(producer) == following
    assert harness.end_epoch(producer) == following
    assert harness.add(following, client_version=2) is NONE
    markers = harness.markers[ORDERS]
    assert {marker.producer for marker in markers} == {(producer.producer_id, LARGEST_EPOCH)}
    assert set(harness.marker_versions) == {2}


def test_the_next_epoch_of_two_phase_commit_is_ignored(harness: TransactionHarness) -> None:
    from odradek.broker.coordinator.runtime.record import CoordinatorRecord, encode_value

    harness.init()
    value = TransactionLogValue(producer_id=ID, producer_epoch=E, next_producer_epoch=9, transaction_timeout_ms=1)
    _, transit = read_transaction(CoordinatorRecord(harness.log[0].key, encode_value(value, 1)))
    assert transit is not None
    assert (transit.producer_id, transit.producer_epoch, transit.next_producer_id) == (ID, E, -1)
