"""AddPartitionsToTxn, EndTxn, markers, verification, descriptions, lists, and loss of leadership."""

import pytest
import structlog

from odradek.broker.coordinator.transaction.state import BY_LABEL, MOVES, IllegalMove, TransactionState, check_move
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.transaction.rooms import MINUTE_MS, ORDERS, RETURNS, TransactionRoom


@pytest.fixture
def room() -> TransactionRoom:
    return TransactionRoom()


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


def test_the_first_partition_begins_a_transaction_and_others_are_added_to_it(room: TransactionRoom) -> None:
    producer = room.init()
    began = room.clock.wall_ms()
    assert room.add(producer, ORDERS) is ErrorCode.NONE
    room.clock.advance(500)
    assert room.add(producer, RETURNS) is ErrorCode.NONE
    transaction = room.transaction()
    assert (room.state(), transaction.partitions, transaction.start_ms) == ("Ongoing", {ORDERS, RETURNS}, began)


def test_partitions_already_in_the_transaction_need_no_record(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer, ORDERS, RETURNS)
    records = len(room.log)
    assert room.add(producer, RETURNS) is ErrorCode.NONE
    assert len(room.log) == records


def test_partitions_are_added_once_their_record_is_in_the_log(room: TransactionRoom) -> None:
    producer = room.init()
    room.appends_held = True
    assert room.add(producer) is None
    assert room.verify(producer) is ErrorCode.INVALID_TXN_STATE
    room.release_appends()
    assert room.verify(producer) is ErrorCode.NONE


def test_partitions_whose_record_cannot_be_written_are_not_added(room: TransactionRoom) -> None:
    producer = room.init()
    room.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert room.add(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.append_failure = None
    assert room.state() == "Empty"
    assert room.add(producer) is ErrorCode.NONE


def test_an_unknown_id_or_producer_is_an_invalid_mapping(room: TransactionRoom) -> None:
    unknown = ProducerIdAndEpoch(5, 0)
    assert room.add(unknown) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = room.init()
    other = producer._replace(producer_id=producer.producer_id + 1)
    assert room.add(other) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert room.end(other) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert room.verify(other) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_no_partition_can_be_added_while_markers_are_being_written(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    assert room.end(producer) is ErrorCode.NONE
    assert room.add(producer, RETURNS) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.verify(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    room.release_markers()
    assert room.add(producer, RETURNS) is ErrorCode.NONE
    assert room.transaction().partitions == {RETURNS}


# Ending


@pytest.mark.parametrize(("committed", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_every_partition_gets_the_marker_with_the_coordinators_epoch(
    room: TransactionRoom, committed: bool, state: str
) -> None:
    room.restart()
    producer = room.init()
    room.add(producer, ORDERS, RETURNS)
    assert room.end(producer, committed) is ErrorCode.NONE
    assert room.markers == {key: [(producer, committed, 1)] for key in (ORDERS, RETURNS)}
    assert (room.state(), room.transaction().partitions) == (state, frozenset())


def test_the_client_is_answered_before_the_markers_are_written(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    assert room.end(producer) is ErrorCode.NONE
    assert (room.state(), room.markers) == ("PrepareCommit", {})


def test_no_marker_is_written_before_the_decision_is_in_the_log(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.appends_held = True
    assert room.end(producer) is None
    assert room.markers == {}
    room.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    room.release_appends()
    assert (room.markers, room.state()) == ({}, "Ongoing")


@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_gets_the_same_response_and_the_opposite_end_is_refused(
    room: TransactionRoom, committed: bool
) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    room.end(producer, committed)
    assert room.end(producer, committed) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.end(producer, not committed) is ErrorCode.CONCURRENT_TRANSACTIONS
    room.release_markers()
    assert room.end(producer, committed) is ErrorCode.NONE
    assert room.end(producer, not committed) is ErrorCode.INVALID_TXN_STATE
    assert len(room.markers[ORDERS]) == 1


def test_ending_a_transaction_that_has_not_begun_is_refused(room: TransactionRoom) -> None:
    producer = room.init()
    assert room.end(producer, True) is ErrorCode.INVALID_TXN_STATE
    assert room.end(producer, False) is ErrorCode.INVALID_TXN_STATE


def test_transactional_ids_are_independent(room: TransactionRoom) -> None:
    mine, other = room.init("mine"), room.init("other")
    room.add(mine, name="mine")
    room.add(other, name="other")
    room.end(mine, name="mine")
    assert (room.state("mine"), room.state("other")) == ("CompleteCommit", "Ongoing")
    assert room.add(mine, name="other") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


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
def test_a_failed_marker_is_retried_until_it_is_written(room: TransactionRoom, failure: ErrorCode) -> None:
    producer = room.init()
    room.add(producer, ORDERS, RETURNS)
    room.marker_failures[RETURNS] = failure
    assert room.end(producer) is ErrorCode.NONE
    delays = []
    for _ in range(6):
        delays += [put.delay_ms for put in room.put_off]
        room.run_delayed_calls()
    assert delays == [100, 200, 400, 800, 1000, 1000]
    assert room.state() == "PrepareCommit"
    assert room.transaction().partitions == {RETURNS}
    room.marker_failures.clear()
    room.run_delayed_calls()
    assert room.state() == "CompleteCommit"
    assert [len(room.markers[key]) for key in (ORDERS, RETURNS)] == [1, 1]


def test_a_deleted_partition_needs_no_marker(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer, ORDERS, RETURNS)
    room.existing.discard(RETURNS)
    assert room.end(producer) is ErrorCode.NONE
    assert (room.state(), list(room.markers)) == ("CompleteCommit", [ORDERS])


def test_a_partition_deleted_while_its_marker_waits_needs_no_marker(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.marker_failures[ORDERS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    room.end(producer)
    room.existing.clear()
    room.run_delayed_calls()
    assert room.state() == "CompleteCommit"


@pytest.mark.parametrize("leader", [-1, 2])
def test_a_marker_waits_for_a_leader_that_can_be_reached(room: TransactionRoom, leader: int) -> None:
    producer = room.init()
    room.add(producer)
    room.leaders[ORDERS] = leader
    room.end(producer)
    assert (room.state(), room.coordinator.markers.of_unknown_destination) == ("PrepareCommit", 1)
    room.leaders.clear()
    room.run_delayed_calls()
    assert (room.state(), room.coordinator.markers.of_unknown_destination) == ("CompleteCommit", 0)


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_coordinator_leaves_the_transaction_to_its_successor(room: TransactionRoom, code: ErrorCode) -> None:
    producer = room.init()
    room.add(producer)
    room.marker_failures[ORDERS] = code
    assert room.end(producer) is ErrorCode.NONE
    assert (room.put_off, room.coordinator.markers.pending) == ([], 0)
    room.marker_failures.clear()
    room.restart()
    assert room.state() == "CompleteCommit"


def test_a_completion_record_is_retried_until_it_is_written(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    room.end(producer)
    room.append_failure = ErrorCode.KAFKA_STORAGE_ERROR
    room.release_markers()
    room.run_delayed_calls()
    assert (room.state(), room.coordinator.completions_to_retry) == ("PrepareCommit", 1)
    assert room.end(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    room.append_failure = None
    room.run_delayed_calls()
    assert (room.state(), room.coordinator.completions_to_retry) == ("CompleteCommit", 0)
    assert len(room.markers[ORDERS]) == 1


# Loss of leadership


def test_waiting_requests_are_not_coordinator_after_leadership_is_lost(room: TransactionRoom) -> None:
    producer = room.init()
    answers: list[ProtocolError | None] = []
    room.appends_held = True
    room.coordinator.add_partitions("t", producer, {ORDERS}, answers.append)
    room.lose_leadership()
    (error,) = answers
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert room.add(producer) is ErrorCode.NOT_COORDINATOR
    assert room.verify(producer) is ErrorCode.NOT_COORDINATOR


def test_markers_written_after_leadership_is_lost_complete_nothing(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.markers_held = True
    room.end(producer)
    records = len(room.log)
    sent, room.sent = room.sent, []
    room.lose_leadership()
    room.start()
    room.sent = sent + room.sent
    room.release_markers()
    assert (room.state(), len(room.log)) == ("CompleteCommit", records + 1)


def test_a_record_replicated_after_leadership_is_lost_is_loaded_by_the_new_coordinator(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.appends_held = True
    answers: list[ProtocolError | None] = []
    room.coordinator.end("t", producer, True, answers.append)
    room.shard.unload()
    room.release_appends()
    (error,) = answers
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR
    assert room.markers == {}
    room.appends_held = False
    room.start()
    assert (room.state(), len(room.markers[ORDERS])) == ("CompleteCommit", 1)


def test_losing_leadership_cancels_a_waiting_retry(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer)
    room.marker_failures[ORDERS] = ErrorCode.NOT_ENOUGH_REPLICAS
    room.end(producer)
    (put,) = room.put_off
    room.lose_leadership()
    assert put.call is None
    assert room.coordinator.markers.pending == 0


def test_marker_results_after_the_coordinator_is_fenced_change_nothing(room: TransactionRoom) -> None:
    producer = room.init()
    room.add(producer, ORDERS, RETURNS)
    room.markers_held = True
    room.end(producer)
    room.marker_failures = {
        ORDERS: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        RETURNS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    room.release_markers()
    assert room.put_off == []
    assert room.transaction().partitions == {ORDERS, RETURNS}


def test_every_state_change_is_logged(room: TransactionRoom) -> None:
    with structlog.testing.capture_logs() as lines:
        producer = room.init()
        room.add(producer)
        room.add(producer, RETURNS)  # changes no state
        room.end(producer)
        room.add(producer)
        room.init()
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


def test_a_description_shows_the_ids_current_state(room: TransactionRoom) -> None:
    room.add(room.init(), RETURNS, ORDERS)
    transaction = room.coordinator.describe("t")
    assert (transaction.state.label, transaction.timeout_ms) == ("Ongoing", MINUTE_MS)
    assert transaction.start_ms == room.clock.wall_ms()


def test_a_description_is_the_same_after_a_restart(room: TransactionRoom) -> None:
    producer = room.init()
    for committed in (True, False):
        room.add(producer)
        room.end(producer, committed)
    room.clock.advance(10)
    room.init()
    before = room.transaction()
    room.restart()
    after = room.transaction()
    fields = ("state", "producer_id", "producer_epoch", "timeout_ms", "partitions", "start_ms", "update_ms")
    assert [getattr(after, name) for name in fields] == [getattr(before, name) for name in fields]


@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)]
)
def test_an_unknown_id_cannot_be_described(room: TransactionRoom, name: str, code: ErrorCode) -> None:
    with pytest.raises(ProtocolError) as caught:
        room.coordinator.describe(name)
    assert caught.value.code is code


def test_ids_are_filtered_by_state_producer_and_duration(room: TransactionRoom) -> None:
    old, young, idle = room.init("old"), room.init("young"), room.init("idle")
    room.add(old, name="old")
    room.clock.advance(1000)
    room.add(young, name="young")

    def names(*filters: object) -> list[str]:
        return sorted(found.transactional_id for found in room.coordinator.listing(*filters).transactions)  # type: ignore[arg-type]

    assert names() == ["idle", "old", "young"]
    assert names(["Ongoing"]) == ["old", "young"]
    assert names(["Ongoing", "Empty"], [idle.producer_id, old.producer_id]) == ["idle", "old"]
    assert names(["Ongoing"], (), 999) == ["old"]
    assert names(["Ongoing"], (), 1000) == []
    assert names(["Dead"]) == []


def test_unknown_state_filters_are_returned_and_match_nothing(room: TransactionRoom) -> None:
    room.init()
    listing = room.coordinator.listing(["ongoing", "Strange"])
    assert (listing.transactions, listing.unknown_states) == ([], ["ongoing", "Strange"])


@pytest.mark.parametrize(
    ("flag", "code"),
    [("loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("is_stopping", ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
def test_ids_cannot_be_listed_during_loading_or_shutdown(room: TransactionRoom, flag: str, code: ErrorCode) -> None:
    setattr(room, flag, True)
    with pytest.raises(ProtocolError) as caught:
        room.coordinator.listing()
    assert caught.value.code is code


def test_many_partitions_take_one_record_and_one_marker_per_partition(room: TransactionRoom) -> None:
    keys = [TopicPartition("wide", number) for number in range(500)]
    room.existing.update(keys)
    producer = room.init()
    room.add(producer, *keys)
    room.end(producer)
    assert len(room.log) == 4
    assert all(len(room.markers[key]) == 1 for key in keys)
