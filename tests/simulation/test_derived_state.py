"""A rebuild finds each thing that a log has derived wrongly, and nothing in a log that is sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.file_names import SNAPSHOT_SUFFIX
from odradek.storage.log.log import Log
from odradek.storage.producers.producer_state import TransactionMetadata
from odradek.storage.producers.producer_state_entry import ProducerStateEntry
from odradek.storage.producers.snapshot_format import write_snapshot
from tests.simulation.derived_state import derived_wrongly
from tests.simulation.derived_state_invariants import (
    cleanings_keep_what_must_stay,
    derived_state_is_that_of_the_batches,
)
from tests.simulation.disk import SimulatedDisk
from tests.simulation.final_state import FinalState
from tests.simulation.log_history import Miscleaned, Underived
from tests.simulation.scenes import Scene
from tests.storage.cleaner.clean_logs import end_transaction
from tests.storage.small_logs import append, idempotent, open_small, truncate

SMALL: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100"}
P = TopicPartition("orders", 0)


@pytest.fixture
def log() -> Log:
    """Several segments in two epochs, with committed, aborted and open transactions."""
    log = open_small(SimulatedDisk(), **SMALL)
    for number in range(6):
        append(log, idempotent(number, b"a", producer_id=1), epoch=number // 5)
        append(log, idempotent(number, b"b", producer_id=2, is_transactional=True), epoch=number // 5)
        if number in (1, 3, 4):
            end_transaction(log, 2, committed=number == 3)
    return log


def drop_epochs(log: Log) -> None:
    log.leader_epochs.entries = log.leader_epochs.entries[1:]


def forget_a_producer(log: Log) -> None:
    del log.producers.state.producers[1]


def forget_a_batch(log: Log) -> None:
    entry = log.producers.state.producers[1]
    entry.batches = entry.batches[:-1]


def leave_a_transaction_open(log: Log) -> None:
    log.producers.state.producers[1].current_transaction_first_offset = 0


def unlist_an_aborted(log: Log) -> None:
    segment = next(segment for segment in log.segments if segment.transaction_index.entries())
    segment.transaction_index.reset()


def index_another_batch(log: Log) -> None:
    log.segments.active.offset_index.append(log.state.log_end_offset + 7, 3)


def empty_an_index(log: Log) -> None:
    for segment in log.segments:
        segment.index_interval_bytes = 10
        segment.offset_index.reset()


def index_another_time(log: Log) -> None:
    log.segments[0].time_index.maybe_append(1 << 50, log.segments[0].base_offset + 1)


def end_early(log: Log) -> None:
    log.state.log_end_offset -= 1
    log.state.high_watermark = log.state.recovery_point = 0


def damage_a_snapshot(log: Log) -> None:
    disk = log.files
    assert isinstance(disk, SimulatedDisk)
    path = next(path for path in disk.names if path.endswith(SNAPSHOT_SUFFIX))
    disk.put(path, write_snapshot([]))


def tear_a_batch(log: Log) -> None:
    log.segments[0].size -= 1


def test_a_sound_log_is_as_rebuilt(log: Log) -> None:
    assert len(log.segments) > 2
    assert list(derived_wrongly(log)) == []
    truncate(log, 7)
    assert list(derived_wrongly(log)) == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (drop_epochs, "a batch of epoch 0 at 0"),
        (forget_a_producer, "producers, without 1"),
        (forget_a_batch, "producers, of which 1 has the batches"),
        (leave_a_transaction_open, "producers, of which 1 has a transaction from 0, not -1"),
        (unlist_an_aborted, "the aborted transactions []"),
        (index_another_batch, "an index of segment"),
        (empty_an_index, "an index of segment 0 that lacks entries"),
        (index_another_time, "a time index of segment 0"),
        (end_early, "the end"),
        (damage_a_snapshot, "a snapshot at"),
        (tear_a_batch, "segment 0, which has"),
    ],
)
def test_what_is_derived_wrongly_is_found(log: Log, damage: Callable[[Log], None], reason: str) -> None:
    damage(log)
    assert any(found.startswith(reason) for found in derived_wrongly(log)), list(derived_wrongly(log))


def test_a_log_that_begins_later_may_know_more_than_its_batches(log: Log) -> None:
    log.start.delete_records_before(9)
    log.apply_retention(0)
    assert log.segments.base_offsets[0] > 0
    assert list(derived_wrongly(log)) == []
    forget_a_producer(log)
    assert list(derived_wrongly(log))


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_a_compacted_log_may_know_of_a_transaction_whose_records_are_gone(is_cleaned: bool) -> None:
    log = open_small(SimulatedDisk(), cleanup_policy="compact", **SMALL)
    for number in range(6):
        append(log, idempotent(number, b"a", producer_id=1))
    assert len(log.segments) > 1
    first = 0 if is_cleaned else log.segments.active.base_offset
    state = log.producers.state
    state.producers[9] = ProducerStateEntry(9, current_transaction_first_offset=first)
    state.ongoing[first] = TransactionMetadata(9, first)
    found = [] if is_cleaned else [f"producers, of which 9 has no open transaction from {first}"]
    assert list(derived_wrongly(log)) == found


def test_what_was_seen_breaks_an_invariant() -> None:
    scene = Scene()
    scene.add(Underived(process="broker-1", partition=P, when="a start", reason="the end 3, but batches to 4"))
    scene.add(Miscleaned(process="broker-1", partition=P, when="a cleaning", reason="no marker at 5"))
    derived = list(derived_state_is_that_of_the_batches(scene.history, FinalState()))
    cleaned = list(cleanings_keep_what_must_stay(scene.history, FinalState()))
    assert [each.invariant for each in derived + cleaned] == ["derived", "cleaned"]
