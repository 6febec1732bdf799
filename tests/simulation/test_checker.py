"""The checker itself: each invariant finds a history that breaks it, and accepts the nearest one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.checker import INVARIANTS, check
from tests.simulation.final_state import (
    BrokerView,
    FinalState,
    Leadership,
    ReplicaLog,
    Stored,
    StoredBatch,
    Unread,
    Waiting,
)
from tests.simulation.history import (
    Broken,
    Commit,
    Committed,
    History,
    JoinedBehind,
    Outcome,
    Read,
    ReadRecord,
    Request,
    Send,
    ServedEarly,
    Started,
    Transaction,
    Truncated,
)
from tests.simulation.log_history import OfflineThoughSound, Undecodable
from tests.simulation.scenes import Scene

P = TopicPartition("orders", 0)
OK, FAILED, UNKNOWN, PENDING = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN, Outcome.PENDING


class CheckedScene(Scene):
    def send(self, *texts: str, at: int = -1, outcome: Outcome = OK, broker: int = 1, **fields: object) -> Send:
        send = Send(
            process=texts[0].split(":")[0],
            partition=P,
            records=texts,
            base_offset=at,
            broker_id=broker,
            **fields,  # type: ignore[arg-type]
        )
        self.add(send, outcome)
        return send

    def read(self, records: Sequence[tuple[int, str]], until: int, position: int = 0, **fields: object) -> Read:
        found = [ReadRecord(offset, 0, text) for offset, text in records]
        fields = {"process": "consumer-1", "high_watermark": until, "leader_epoch": 0, "broker_id": 1} | fields
        read = Read(partition=P, position=position, next_position=until, records=found, **fields)  # type: ignore[arg-type]
        self.add(read)
        return read

    def transaction(self, outcome: Outcome = OK, *, commits: bool = True) -> Transaction:
        transaction = Transaction(process="t", transactional_id="t", number=1, commits=commits)
        self.history.begin(transaction)
        self.history.end(transaction, outcome)
        return transaction

    def commit(self, offset: int, outcome: Outcome = OK, transaction: Transaction | None = None) -> None:
        self.add(Commit(process="member-1", group="g", offsets={P: offset}, transaction=transaction), outcome)

    def committed(self, offset: int) -> None:
        self.add(Committed(process="member-1", group="g", offsets={P: offset}))

    def violated(self, *texts: str, **final: object) -> set[str]:
        """The names of the invariants that are broken if the log has these records."""
        state = FinalState(logs={P: log(*texts)}, **final)  # type: ignore[arg-type]
        return {violation.invariant for violation in check(self.history, state)}


def log(*texts: str, broker: int = 1, watermark: int | None = None, epochs: Sequence[int] | None = None) -> ReplicaLog:
    """A log with one record per batch."""
    batches = []
    for offset, text in enumerate(texts):
        epoch = epochs[offset] if epochs else 0
        content = build_batch(
            [Record(offset=offset, value=text.encode())], base_offset=offset, partition_leader_epoch=epoch
        )
        batches.append(StoredBatch(offset, offset, epoch, content))
    end = len(texts) if watermark is None else watermark
    return ReplicaLog(partition=P, broker_id=broker, high_watermark=end, batches=batches)


@pytest.fixture
def scene() -> CheckedScene:
    return CheckedScene()


def test_every_invariant_has_a_name() -> None:
    assert [function.__doc__ for function in INVARIANTS.values()] == list(INVARIANTS)


def test_an_empty_history_breaks_nothing(scene: CheckedScene) -> None:
    assert scene.violated() == set()


# --- kept


def test_an_acknowledged_record_that_is_not_in_the_log_is_found(scene: CheckedScene) -> None:
    scene.send("a:1")
    assert scene.violated("a:1") == set()
    assert scene.violated() == {"kept"}


def test_a_record_at_another_offset_than_acknowledged_is_found(scene: CheckedScene) -> None:
    scene.send("a:1", at=1)
    assert scene.violated("b:1", "a:1") == set()
    assert scene.violated("a:1") == {"kept"}


def test_a_refused_record_that_is_in_the_log_is_found(scene: CheckedScene) -> None:
    scene.send("a:1", outcome=FAILED)
    assert scene.violated() == set()
    assert scene.violated("a:1") == {"kept"}


def test_a_record_without_an_answer_may_be_there_or_not(scene: CheckedScene) -> None:
    scene.send("a:1", outcome=UNKNOWN)
    assert scene.violated() == scene.violated("a:1") == set()


def test_a_record_acknowledged_by_the_leader_alone_may_be_lost(scene: CheckedScene) -> None:
    scene.send("a:1", acks=1)
    assert scene.violated() == set()


# --- once, in order


def test_a_record_that_is_there_twice_is_found(scene: CheckedScene) -> None:
    scene.send("a:1", outcome=UNKNOWN)
    assert scene.violated("a:1", "a:1") == {"once"}


def test_a_producer_without_idempotence_may_duplicate(scene: CheckedScene) -> None:
    scene.send("a:1", is_idempotent=False)
    assert scene.violated("a:1", "a:1") == set()


def test_records_in_another_order_than_they_were_sent_are_found(scene: CheckedScene) -> None:
    scene.send("a:1", "a:2")
    scene.send("a:3")
    scene.send("b:1")
    assert scene.violated("a:1", "b:1", "a:2", "a:3") == set()
    assert scene.violated("a:1", "a:3", "a:2", "b:1") == {"in order"}


# --- stable


def test_a_high_watermark_that_moves_back_is_found(scene: CheckedScene) -> None:
    scene.send("a:1")
    scene.read([(0, "a:1")], until=1)
    scene.read([], position=1, until=1, high_watermark=2)
    assert scene.violated("a:1") == set()
    scene.read([], position=1, until=1, high_watermark=1)
    assert scene.violated("a:1") == {"stable"}


def test_another_leader_may_begin_with_an_older_high_watermark(scene: CheckedScene) -> None:
    scene.read([], until=0, high_watermark=2)
    scene.read([], until=0, high_watermark=1, leader_epoch=1, broker_id=2)
    assert scene.violated() == set()


def test_a_restarted_leader_may_begin_with_an_older_high_watermark(scene: CheckedScene) -> None:
    scene.read([], until=0, high_watermark=2)
    scene.add(Started(process="broker-1", broker_id=1))
    scene.read([], until=0, high_watermark=1)
    assert scene.violated() == set()


def test_a_truncation_below_a_consumers_position_is_found(scene: CheckedScene) -> None:
    scene.add(Truncated(process="consumer-1", partition=P, position=5, end_offset=5))
    assert scene.violated() == set()
    scene.add(Truncated(process="consumer-1", partition=P, position=5, end_offset=4))
    assert scene.violated() == {"stable"}


def test_another_record_where_one_was_read_before_is_found(scene: CheckedScene) -> None:
    scene.read([(0, "a:1")], until=1)
    assert scene.violated("a:1") == set()
    assert "stable" in scene.violated("b:1")


# --- complete


def test_a_record_that_a_consumer_was_not_given_is_found(scene: CheckedScene) -> None:
    scene.send("a:1", "a:2")
    scene.read([(0, "a:1")], until=1)
    assert scene.violated("a:1", "a:2") == set()
    scene.read([], position=1, until=2)
    assert scene.violated("a:1", "a:2") == {"complete"}


def test_a_consumer_that_does_not_read_to_the_end_is_found(scene: CheckedScene) -> None:
    assert scene.violated("a:1", unread=[Unread("consumer-1", P, 0, 1)]) == {"complete"}


# --- one leader


def test_two_brokers_that_acknowledge_in_one_epoch_are_found(scene: CheckedScene) -> None:
    scene.send("a:1", at=0, broker=1)
    scene.send("a:2", at=1, broker=2)
    final = FinalState(logs={P: log("a:1", "a:2", epochs=[0, 1])})
    assert check(scene.history, final) == []
    assert scene.violated("a:1", "a:2") == {"one leader"}


def test_a_leader_may_confirm_what_another_has_appended(scene: CheckedScene) -> None:
    scene.send("a:1", at=0, broker=1)
    scene.send("a:2", at=1, broker=2, attempts=2)
    assert scene.violated("a:1", "a:2") == set()


def test_two_brokers_that_serve_consumers_in_one_epoch_are_found(scene: CheckedScene) -> None:
    scene.read([], until=0, broker_id=1)
    scene.read([], until=0, broker_id=2, leader_epoch=1)
    assert scene.violated() == set()
    scene.read([], until=0, broker_id=2, process="consumer-2")
    assert scene.violated() == {"one leader"}


# --- atomic


@pytest.mark.parametrize(
    ("outcome", "commits", "seen", "allowed"),
    [
        (OK, True, "both", True),
        (OK, True, "one", False),
        (OK, True, "none", False),
        (OK, False, "none", True),
        (OK, False, "one", False),
        (FAILED, True, "none", True),
        (FAILED, True, "one", False),
        (UNKNOWN, True, "both", True),
        (UNKNOWN, True, "none", True),
        (UNKNOWN, True, "one", False),
    ],
)
def test_a_transaction_is_read_as_a_whole_or_not_at_all(
    scene: CheckedScene, outcome: Outcome, commits: bool, seen: str, allowed: bool
) -> None:
    transaction = scene.transaction(outcome, commits=commits)
    scene.send("t:1", transaction=transaction)
    scene.send("t:2", transaction=transaction)
    both = [(0, "t:1"), (1, "t:2")]
    records = {"both": both, "one": both[:1], "none": []}[seen]
    scene.read(records, until=2, is_committed=True)
    assert ("atomic" not in scene.violated("t:1", "t:2")) == allowed


def test_a_transaction_that_was_not_read_to_its_end_may_be_seen_in_part(scene: CheckedScene) -> None:
    transaction = scene.transaction()
    scene.send("t:1", transaction=transaction)
    scene.send("t:2", transaction=transaction)
    scene.read([(0, "t:1")], until=1, is_committed=True)
    assert scene.violated("t:1", "t:2") == set()


def test_a_read_committed_consumer_need_not_get_aborted_records(scene: CheckedScene) -> None:
    scene.send("t:1", transaction=scene.transaction(commits=False))
    scene.read([], until=1, is_committed=True)
    assert scene.violated("t:1") == set()
    scene.read([], until=1)
    assert scene.violated("t:1") == {"complete"}


# --- offsets


def test_a_committed_offset_that_is_lost_is_found(scene: CheckedScene) -> None:
    scene.commit(1)
    scene.commit(2)
    scene.committed(2)
    assert scene.violated() == set()
    scene.committed(1)
    assert scene.violated() == {"offsets"}


def test_a_commit_without_an_answer_may_count_or_not(scene: CheckedScene) -> None:
    scene.commit(1)
    scene.commit(2, UNKNOWN)
    scene.committed(1)
    scene.committed(2)
    assert scene.violated() == set()


def test_an_offset_that_nobody_committed_is_found(scene: CheckedScene) -> None:
    scene.commit(2, FAILED)
    scene.committed(-1)
    assert scene.violated() == set()
    scene.committed(2)
    assert scene.violated() == {"offsets"}


def test_the_offset_of_an_aborted_transaction_is_found(scene: CheckedScene) -> None:
    scene.commit(1)
    scene.commit(2, transaction=scene.transaction(commits=False))
    scene.committed(1)
    assert scene.violated() == set()
    scene.committed(2)
    assert scene.violated() == {"offsets"}


def test_the_lost_offset_of_a_committed_transaction_is_found(scene: CheckedScene) -> None:
    scene.commit(2, transaction=scene.transaction())
    scene.committed(2)
    assert scene.violated() == set()
    scene.committed(-1)
    assert scene.violated() == {"offsets"}


# --- groups


def test_a_record_that_a_group_skipped_is_found(scene: CheckedScene) -> None:
    scene.send("a:1", "a:2")
    scene.read([(0, "a:1")], until=1, process="member-1")
    scene.commit(1)
    scene.committed(1)
    assert scene.violated("a:1", "a:2") == set()
    scene.commit(2)
    scene.committed(2)
    assert scene.violated("a:1", "a:2") == {"groups"}


# --- replicas


def test_replicas_may_differ_above_the_smaller_high_watermark(scene: CheckedScene) -> None:
    replicas = [log("a:1", "a:2"), log("a:1", "b:1", broker=2, watermark=1)]
    assert scene.violated(replicas=replicas) == set()


def test_replicas_that_differ_below_the_high_watermark_are_found(scene: CheckedScene) -> None:
    assert scene.violated(replicas=[log("a:1", "a:2"), log("a:1", "b:1", broker=2)]) == {"replicas"}
    assert scene.violated(replicas=[log("a:1", "a:2"), log("a:1", broker=2, watermark=2)]) == {"replicas"}


def test_replicas_that_differ_in_epochs_alone_are_found(scene: CheckedScene) -> None:
    assert scene.violated(replicas=[log("a:1", epochs=[1]), log("a:1", broker=2, epochs=[0])]) == {"replicas"}


def test_a_log_that_cannot_be_read_is_found(scene: CheckedScene) -> None:
    damaged = ReplicaLog(partition=P, broker_id=1, high_watermark=0, damage="zeros")
    assert scene.violated(replicas=[damaged]) == {"replicas"}


def test_a_batch_that_a_consumer_cannot_decode_is_found(scene: CheckedScene) -> None:
    scene.add(Undecodable(process="reader", partition=P, base_offset=3, reason="its checksum does not match"))
    assert scene.violated() == {"replicas"}


def test_a_replica_that_is_offline_without_need_is_found(scene: CheckedScene) -> None:
    scene.add(OfflineThoughSound(process="broker-1", partition=P, reason="Input/output error"))
    assert scene.violated() == {"sound"}


def test_epochs_that_go_back_in_a_log_are_found(scene: CheckedScene) -> None:
    assert scene.violated(replicas=[log("a:1", "a:2", epochs=[1, 0])]) == {"replicas"}


# --- states


def test_a_broken_invariant_of_an_object_is_found(scene: CheckedScene) -> None:
    assert scene.violated() == set()
    scene.add(Broken(process="broker-1", what="orders-0", reason="it ends at 4"))
    assert scene.violated() == {"states"}


# --- in sync, coordinators


def test_a_replica_that_joins_the_in_sync_replicas_too_early_is_found(scene: CheckedScene) -> None:
    scene.add(JoinedBehind(process="store", partition=P, broker_id=2, log_end_offset=4, high_watermark=5))
    assert scene.violated() == {"in sync"}


def test_a_coordinator_that_serves_too_early_is_found(scene: CheckedScene) -> None:
    scene.add(ServedEarly(process="broker-1", partition=P, high_watermark=4, start_offset=5))
    assert scene.violated() == {"coordinators"}


# --- convergence


def view(broker: int, leadership: Leadership, controller: int = 1) -> BrokerView:
    led = {P: leadership.leader_epoch} if leadership.leader_id == broker else {}
    return BrokerView(
        broker_id=broker, controller_id=controller, live_brokers=(1, 2), partitions={P: leadership}, led=led
    )


LEADERSHIP = Leadership(1, 3, (1, 2), (1, 2))


def test_brokers_that_agree_have_converged(scene: CheckedScene) -> None:
    assert scene.violated(views=[view(1, LEADERSHIP), view(2, LEADERSHIP)]) == set()


def test_brokers_that_do_not_agree_are_found(scene: CheckedScene) -> None:
    views = [
        [view(1, LEADERSHIP), view(2, LEADERSHIP, controller=2)],
        [view(1, LEADERSHIP), view(2, LEADERSHIP._replace(leader_epoch=2))],
        [view(2, LEADERSHIP)],
        [view(broker, LEADERSHIP._replace(in_sync=(1,))) for broker in (1, 2)],
    ]
    for each in views:
        assert scene.violated(views=each) == {"convergence"}


def test_brokers_that_do_not_have_what_the_store_has_are_found(scene: CheckedScene) -> None:
    views = [view(1, LEADERSHIP), view(2, LEADERSHIP)]
    stored = Stored(LEADERSHIP.leader_id, LEADERSHIP.leader_epoch, LEADERSHIP.in_sync)
    assert scene.violated(views=views, stored={P: stored}) == set()
    assert scene.violated(views=views, stored={P: stored._replace(leader_epoch=7)}) == {"convergence"}


# --- answered


def test_an_operation_that_never_ends_is_found(scene: CheckedScene) -> None:
    scene.add(Request(process="admin", what="create a topic"), PENDING)
    assert scene.violated() == {"answered"}


def test_a_request_that_is_parked_beyond_its_time_is_found(scene: CheckedScene) -> None:
    assert scene.violated(waiting=[Waiting(1, "a fetch", 0)]) == set()
    assert scene.violated(waiting=[Waiting(1, "a fetch", 5000)]) == {"answered"}


def test_a_transaction_that_stays_open_is_found(scene: CheckedScene) -> None:
    replica = ReplicaLog(partition=P, broker_id=1, high_watermark=7, last_stable_offset=7)
    assert check(scene.history, FinalState(logs={P: replica})) == []
    replica.last_stable_offset = 5
    assert [each.invariant for each in check(scene.history, FinalState(logs={P: replica}))] == ["answered"]


# --- quiet


def test_brokers_that_keep_asking_are_found(scene: CheckedScene) -> None:
    assert scene.violated(messages_per_second=50.0) == set()
    assert scene.violated(messages_per_second=5000.0) == {"quiet"}


# --- the history


def test_the_history_around_an_operation_is_what_overlaps_it() -> None:
    times = iter([0, 10, 20, 1_000_000, 5_000_000, 6_000_000, 7_000_000, 7_000_001])
    history = History(lambda: next(times))
    early = history.begin(Request(process="a", what="early"))
    within = history.begin(Request(process="b", what="within"))
    history.end(early, OK)
    history.end(within, OK)
    failing = history.note(Request(process="c", what="failing"))
    late = history.note(Request(process="d", what="late"))
    assert history.around([failing], margin_us=100_000) == [failing]
    assert history.around([within], margin_us=100_000) == [early, within]
    assert late in history.around([failing], margin_us=1_000_000)
    assert str(early) == "  0.000000   0.000020 a: early: ok"
