"""AddPartitionsToTxn, EndTxn, markers, verification, descriptions, lists, and loss of leadership."""

import pytest
import structlog

from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.broker.coordinator.transaction.transaction_state import (
    BY_LABEL,
    MOVES,
    IllegalMove,
    TransactionState,
    check_move,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.transaction.harness import MINUTE_MS, ORDERS, RETURNS, TransactionHarness


@pytest.fixture
def harness() -> TransactionHarness:
    return TransactionHarness()


# The table


def test_every_state_can_be_reached_and_only_dead_is_final() -> None:
    assert {new for _, new in MOVES} == set(TransactionState)
    assert set(TransactionState) - {old for old, _ in MOVES} == {TransactionState.DEAD}


def test_a_state_change_outside_the_table_raises() -> None:
    legal = 0
    for old in TransactionState:
        for new in TransactionState:
            if (old, new) in MOVES:
                check_move(old, new)
                legal += 1
            else:
                with pytest.raises(IllegalMove):
                    check_move(old, new)
    assert legal == len(MOVES)


def test_states_have_kafkas_names() -> None:
    assert set(BY_LABEL) == {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }


# Adding partitions


def test_the_first_partition_begins_a_transaction_and_others_are_added_to_it(harness: TransactionHarness) -> None:
    producer = harness.init()
    began = harness.clock.wall_ms()
    assert harness.add(producer, ORDERS) is ErrorCode.NONE
    harness.clock.advance(500)
    assert harness.add(producer, RETURNS) is ErrorCode.NONE
    transaction = harness.transaction()
    assert (harness.state(), transaction.partitions, transaction.start_ms) == ("Ongoing", {ORDERS, RETURNS}, began)


def test_partitions_already_in_the_transaction_need_no_record(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    records = len(harness.log)
    assert harness.add(producer, RETURNS) is ErrorCode.NONE
    assert len(harness.log) == records


def test_partitions_are_added_once_their_record_is_in_the_log(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.appends_held = True
    assert harness.add(producer) is None
    assert harness.verify(producer) is ErrorCode.TRANSACTION_ABORTABLE
    harness.release_appends()
    assert harness.verify(producer) is ErrorCode.NONE


# Ending


@pytest.mark.parametrize(("committed", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_every_partition_gets_the_marker_with_the_coordinators_epoch(
    harness: TransactionHarness, committed: bool, state: str
) -> None:
    harness.restart()
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    assert harness.end(producer, committed) is ErrorCode.NONE
    assert harness.markers == {key: [(producer, committed, 1)] for key in (ORDERS, RETURNS)}
    assert (harness.state(), harness.transaction().partitions) == (state, frozenset())


def test_the_client_is_answered_before_the_markers_are_written(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.markers_held = True
    assert harness.end(producer) is ErrorCode.NONE
    assert (harness.state(), harness.markers) == ("PrepareCommit", {})


def test_no_marker_is_written_before_the_decision_is_in_the_log(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.appends_held = True
    assert harness.end(producer) is None
    assert harness.markers == {}
    harness.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.release_appends()
    assert (harness.markers, harness.state()) == ({}, "Ongoing")


def test_transactional_ids_are_independent(harness: TransactionHarness) -> None:
    mine, other = harness.init("mine"), harness.init("other")
    harness.add(mine, name="mine")
    harness.add(other, name="other")
    harness.end(mine, name="mine")
    assert (harness.state("mine"), harness.state("other")) == ("CompleteCommit", "Ongoing")
    assert harness.add(mine, name="other") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Markers that fail


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_failed_marker_is_retried_until_it_is_written(harness: TransactionHarness, failure: ErrorCode) -> None:
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.marker_failures[RETURNS] = failure
    assert harness.end(producer) is ErrorCode.NONE
    delays = []
    for _ in range(6):
        delays += [put.delay_ms for put in harness.put_off]
        harness.run_delayed_calls()
    assert delays == [100, 200, 400, 800, 1000, 1000]
    assert harness.state() == "PrepareCommit"
    assert harness.transaction().partitions == {RETURNS}
    harness.marker_failures.clear()
    harness.run_delayed_calls()
    assert harness.state() == "CompleteCommit"
    assert [len(harness.markers[key]) for key in (ORDERS, RETURNS)] == [1, 1]


def test_a_deleted_partition_needs_no_marker(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.existing.discard(RETURNS)
    assert harness.end(producer) is ErrorCode.NONE
    assert (harness.state(), list(harness.markers)) == ("CompleteCommit", [ORDERS])


def test_a_partition_deleted_while_its_marker_waits_needs_no_marker(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.marker_failures[ORDERS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.end(producer)
    harness.existing.clear()
    harness.run_delayed_calls()
    assert harness.state() == "CompleteCommit"


@pytest.mark.parametrize("leader", [-1, 2])
def test_a_marker_waits_for_a_leader_that_can_be_reached(harness: TransactionHarness, leader: int) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.leaders[ORDERS] = leader
    harness.end(producer)
    assert (harness.state(), harness.coordinator.markers.of_unknown_destination) == ("PrepareCommit", 1)
    harness.leaders.clear()
    harness.run_delayed_calls()
    assert (harness.state(), harness.coordinator.markers.of_unknown_destination) == ("CompleteCommit", 0)


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_coordinator_leaves_the_transaction_to_its_successor(
    harness: TransactionHarness, code: ErrorCode
) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.marker_failures[ORDERS] = code
    assert harness.end(producer) is ErrorCode.NONE
    assert (harness.put_off, harness.coordinator.markers.pending) == ([], 0)
    harness.marker_failures.clear()
    harness.restart()
    assert harness.state() == "CompleteCommit"


def test_a_completion_record_is_retried_until_it_is_written(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.markers_held = True
    harness.end(producer)
    harness.append_failure = ErrorCode.KAFKA_STORAGE_ERROR
    harness.release_markers()
    harness.run_delayed_calls()
    assert (harness.state(), harness.coordinator.completions_to_retry) == ("PrepareCommit", 1)
    assert harness.end(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.append_failure = None
    harness.run_delayed_calls()
    assert (harness.state(), harness.coordinator.completions_to_retry) == ("CompleteCommit", 0)
    assert len(harness.markers[ORDERS]) == 1


# Loss of leadership


def test_waiting_requests_are_not_coordinator_after_leadership_is_lost(harness: TransactionHarness) -> None:
    producer = harness.init()
    answers: list[ProtocolError | None] = []
    harness.appends_held = True
    harness.coordinator.add_partitions("t", producer, {ORDERS}, answers.append)
    harness.lose_leadership()
    (error,) = answers
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert harness.add(producer) is ErrorCode.NOT_COORDINATOR
    assert harness.verify(producer) is ErrorCode.NOT_COORDINATOR


def test_markers_written_after_leadership_is_lost_complete_nothing(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.markers_held = True
    harness.end(producer)
    records = len(harness.log)
    sent, harness.sent = harness.sent, []
    harness.lose_leadership()
    harness.start()
    harness.sent = sent + harness.sent
    harness.release_markers()
    assert (harness.state(), len(harness.log)) == ("CompleteCommit", records + 1)


def test_a_record_replicated_after_leadership_is_lost_is_loaded_by_the_new_coordinator(
    harness: TransactionHarness,
) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.appends_held = True
    answers: list[ProducerIdAndEpoch | ProtocolError] = []
    harness.coordinator.end("t", producer, True, answers.append)
    harness.shard.unload()
    harness.release_appends()
    (error,) = answers
    assert isinstance(error, ProtocolError)
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert harness.markers == {}
    harness.appends_held = False
    harness.start()
    assert (harness.state(), len(harness.markers[ORDERS])) == ("CompleteCommit", 1)


def test_losing_leadership_cancels_a_waiting_retry(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer)
    harness.marker_failures[ORDERS] = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.end(producer)
    (put,) = harness.put_off
    harness.lose_leadership()
    assert put.call is None
    assert harness.coordinator.markers.pending == 0


def test_marker_results_after_the_coordinator_is_fenced_change_nothing(harness: TransactionHarness) -> None:
    producer = harness.init()
    harness.add(producer, ORDERS, RETURNS)
    harness.markers_held = True
    harness.end(producer)
    harness.marker_failures = {
        ORDERS: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        RETURNS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    harness.release_markers()
    assert harness.put_off == []
    assert harness.transaction().partitions == {ORDERS, RETURNS}


def test_every_state_change_is_logged(harness: TransactionHarness) -> None:
    with structlog.testing.capture_logs() as lines:
        producer = harness.init()
        harness.add(producer)
        harness.add(producer, RETURNS)  # changes no state
        harness.end(producer)
        harness.add(producer)
        harness.init()
    changes = [line for line in lines if line["event"] == "transaction state changed"]
    assert [(line["old"], line["new"], line["producer_epoch"], line["reason"]) for line in changes] == [
        ("Empty", "Empty", 0, "InitProducerId"),
        ("Empty", "Ongoing", 0, "AddPartitionsToTxn"),
        ("Ongoing", "PrepareCommit", 0, "EndTxn"),
        ("PrepareCommit", "CompleteCommit", 0, "all markers are written"),
        ("CompleteCommit", "Ongoing", 0, "AddPartitionsToTxn"),
        ("Ongoing", "PrepareAbort", 1, "InitProducerId of another producer"),
        ("PrepareAbort", "CompleteAbort", 1, "all markers are written"),
    ]
    assert {(line["transactional_id"], line["producer_id"], line["log_level"]) for line in changes} == {
        ("t", producer.producer_id, "info")
    }
    assert [line["log_level"] for line in lines if line not in changes] == ["debug"]


# Describing and listing (KIP-664)


def test_a_description_shows_the_ids_current_state(harness: TransactionHarness) -> None:
    harness.add(harness.init(), RETURNS, ORDERS)
    transaction = harness.coordinator.describe("t")
    assert (transaction.state.label, transaction.timeout_ms) == ("Ongoing", MINUTE_MS)
    assert transaction.start_ms == harness.clock.wall_ms()


def test_a_description_is_the_same_after_a_restart(harness: TransactionHarness) -> None:
    producer = harness.init()
    for committed in (True, False):
        harness.add(producer)
        harness.end(producer, committed)
    harness.clock.advance(10)
    harness.init()
    before = harness.transaction()
    harness.restart()
    after = harness.transaction()
    fields = ("state", "producer_id", "producer_epoch", "timeout_ms", "partitions", "start_ms", "update_ms")
    assert [getattr(after, name) for name in fields] == [getattr(before, name) for name in fields]


@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)]
)
def test_an_unknown_id_cannot_be_described(harness: TransactionHarness, name: str, code: ErrorCode) -> None:
    with pytest.raises(ProtocolError) as caught:
        harness.coordinator.describe(name)
    assert caught.value.code is code


def test_ids_are_filtered_by_state_producer_and_duration(harness: TransactionHarness) -> None:
    old, young, idle = harness.init("old"), harness.init("young"), harness.init("idle")
    harness.add(old, name="old")
    harness.clock.advance(1000)
    harness.add(young, name="young")

    def names(*filters: object) -> list[str]:
        return sorted(found.transactional_id for found in harness.coordinator.listing(*filters).transactions)  # type: ignore[arg-type]

    assert names() == ["idle", "old", "young"]
    assert names(["Ongoing"]) == ["old", "young"]
    assert names(["Ongoing", "Empty"], [idle.producer_id, old.producer_id]) == ["idle", "old"]
    assert names(["Ongoing"], (), 999) == ["old"]
    assert names(["Ongoing"], (), 1000) == []
    assert names(["Dead"]) == []


def test_unknown_state_filters_are_returned_and_match_nothing(harness: TransactionHarness) -> None:
    harness.init()
    listing = harness.coordinator.listing(["ongoing", "Strange"])
    assert (listing.transactions, listing.unknown_states) == ([], ["ongoing", "Strange"])


@pytest.mark.parametrize(
    ("flag", "code"),
    [("loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("is_stopping", ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
def test_ids_cannot_be_listed_during_loading_or_shutdown(
    harness: TransactionHarness, flag: str, code: ErrorCode
) -> None:
    setattr(harness, flag, True)
    with pytest.raises(ProtocolError) as caught:
        harness.coordinator.listing()
    assert caught.value.code is code


def test_many_partitions_take_one_record_and_one_marker_per_partition(harness: TransactionHarness) -> None:
    keys = [TopicPartition("wide", number) for number in range(500)]
    harness.existing.update(keys)
    producer = harness.init()
    harness.add(producer, *keys)
    harness.end(producer)
    assert len(harness.log) == 4
    assert all(len(harness.markers[key]) == 1 for key in keys)
