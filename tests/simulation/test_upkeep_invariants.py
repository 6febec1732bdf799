"""The invariants of settings, log directories and compaction: each finds a history that breaks it, and accepts the
nearest one that does not."""

from __future__ import annotations

import pytest

from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.checker import check
from tests.simulation.compaction_invariants import key_of
from tests.simulation.final_state import FinalState, Folder, ReplicaLog, SettingInForce, StoredBatch
from tests.simulation.history import Outcome, Read, ReadRecord, Send, Started
from tests.simulation.scenes import Scene
from tests.simulation.topic_invariants import LATE_US
from tests.simulation.upkeep_history import DiskFilled, Move, Setting, SettingChange

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
P = TopicPartition("balances", 0)
SETTING = Setting("max.message.bytes", topic="balances")


class UpkeepScene(Scene):
    def set(self, value: str, outcome: Outcome = OK) -> None:
        self.add(SettingChange(process="admin", setting=SETTING, value=value), outcome)

    def settings(self, *values: str | None) -> list[str]:
        found = [SettingInForce(f"broker {number}", SETTING, value) for number, value in enumerate(values, 1)]
        return self.violated(FinalState(settings=found))

    def move(self, directory: str, outcome: Outcome = OK) -> None:
        self.add(Move(process="admin", partition=P, broker_id=1, directory=directory), outcome)

    def placed(self, *directories: str) -> list[str]:
        return self.violated(FinalState(folders=[Folder(1, P, None, directory) for directory in directories]))

    def send(self, *texts: str, at: int, outcome: Outcome = OK) -> None:
        self.add(Send(process="k", partition=P, records=texts, base_offset=at), outcome)

    def read(self, *records: tuple[int, str], until: int) -> None:
        found = [ReadRecord(offset, 0, text) for offset, text in records]
        self.add(Read(process="reader-1", partition=P, position=0, next_position=until, records=found))

    def compacted(self, *logs: ReplicaLog) -> list[str]:
        return self.violated(FinalState(logs={P: logs[0]}, replicas=logs))

    def violated(self, final: FinalState) -> list[str]:
        return [violation.invariant for violation in check(self.history, final)]


@pytest.fixture
def scene() -> UpkeepScene:
    return UpkeepScene()


# --- settings


def test_a_confirmed_setting_that_is_not_in_force_is_found(scene: UpkeepScene) -> None:
    scene.set("1")
    scene.set("2")
    scene.set("3", FAILED)
    assert scene.settings("2", "2") == []
    assert scene.settings("1", "1") == ["settings"]
    assert scene.settings(None) == ["settings"]


def test_a_setting_without_an_answer_may_be_in_force_or_not(scene: UpkeepScene) -> None:
    scene.set("1")
    scene.set("2", UNKNOWN)
    assert scene.settings("1") == scene.settings("2") == []


def test_a_setting_without_an_answer_may_come_late_but_not_for_ever(scene: UpkeepScene) -> None:
    scene.set("1", UNKNOWN)
    scene.set("2")
    assert scene.settings("1") == []
    scene.now_us += LATE_US
    scene.set("3")
    assert scene.settings("1") == ["settings"]


def test_brokers_with_different_settings_are_found(scene: UpkeepScene) -> None:
    scene.set("1")
    scene.set("2", UNKNOWN)
    assert scene.settings("1", "2") == ["settings"]


# --- directories


def test_a_replica_that_is_not_where_it_was_moved_is_found(scene: UpkeepScene) -> None:
    scene.move("/more")
    scene.move("/data", FAILED)
    assert scene.placed("/more") == []
    assert scene.placed("/data") == ["directories"]


def test_a_move_without_an_answer_and_one_before_a_restart_may_be_given_up(scene: UpkeepScene) -> None:
    scene.move("/more", UNKNOWN)
    assert scene.placed("/data") == []
    scene.move("/more")
    scene.add(Started(process="broker-1", broker_id=1))
    assert scene.placed("/data") == []


def test_a_move_before_the_disk_was_full_may_be_given_up(scene: UpkeepScene) -> None:
    scene.move("/more")
    scene.add(DiskFilled(process="broker-1", broker_id=1))
    assert scene.placed("/data") == []
    scene.move("/more")
    assert scene.placed("/data") == ["directories"]


def test_a_replica_in_two_directories_is_found(scene: UpkeepScene) -> None:
    assert scene.placed("/data", "/more") == ["directories"]


def test_a_replica_that_moves_in_the_end_is_found(scene: UpkeepScene) -> None:
    assert scene.violated(FinalState(future_folders=[Folder(1, P, None, "/more")])) == ["directories"]


# --- compaction


def log(
    *records: tuple[int, str | None], broker: int = 1, end: int = 20, transactional: int | None = None
) -> ReplicaLog:
    """A compacted log with one record per batch, by offset. None: a tombstone of the key of k:1. `transactional`: the
    offset of one that is in a transaction."""
    batches = [
        StoredBatch(
            offset,
            offset,
            0,
            build_batch(
                [Record(offset=offset, key=key_of(text or "k:1"), value=None if text is None else text.encode())],
                base_offset=offset,
                is_transactional=offset == transactional,
            ),
        )
        for offset, text in records
    ]
    return ReplicaLog(partition=P, broker_id=broker, high_watermark=end, is_compacted=True, batches=batches)


def test_the_last_record_of_a_key_that_is_gone_is_found(scene: UpkeepScene) -> None:
    """k:1 and k:9 have the same key."""
    scene.send("k:1", "k:2", at=0)
    scene.send("k:9", at=2)
    assert scene.compacted(log((0, "k:1"), (1, "k:2"), (2, "k:9"))) == []
    assert scene.compacted(log((1, "k:2"), (2, "k:9"))) == []
    assert scene.compacted(log((0, "k:1"), (1, "k:2"))) == ["compacted"]
    assert scene.compacted(log((2, "k:9"))) == ["compacted"]


def test_a_record_without_an_answer_may_be_the_last_of_its_key(scene: UpkeepScene) -> None:
    scene.send("k:1", at=0)
    scene.send("k:9", at=-1, outcome=UNKNOWN)
    assert scene.compacted(log((0, "k:1"))) == scene.compacted(log((5, "k:9"))) == []


def test_a_record_that_has_moved_is_found(scene: UpkeepScene) -> None:
    scene.send("k:1", "k:2", at=0)
    assert "compacted" in scene.compacted(log((0, "k:2"), (1, "k:1")))


def test_a_record_after_one_that_was_sent_later_is_found(scene: UpkeepScene) -> None:
    scene.send("k:1", at=-1, outcome=UNKNOWN)
    scene.send("k:9", at=-1, outcome=UNKNOWN)
    assert scene.compacted(log((3, "k:1"), (4, "k:9"))) == []
    assert "compacted" in scene.compacted(log((3, "k:9"), (4, "k:1")))


def test_replicas_that_differ_in_the_last_record_of_a_key_are_found(scene: UpkeepScene) -> None:
    whole = log((0, "k:1"), (1, "k:9"))
    assert scene.compacted(whole, log((1, "k:9"), broker=2)) == []
    assert scene.compacted(whole, log((0, "k:1"), broker=2)) == ["compacted"]
    assert scene.compacted(whole, log((0, "k:1"), broker=2, end=1)) == []


def test_a_record_that_may_have_been_aborted_is_removed_at_any_time(scene: UpkeepScene) -> None:
    whole = log((0, "k:1"), (4, "k:9"), transactional=4)
    assert scene.compacted(whole, log((0, "k:1"), broker=2)) == scene.compacted(log((0, "k:1")), whole) == []


def test_a_tombstone_is_removed_at_any_time_but_not_without_the_records_before_it(scene: UpkeepScene) -> None:
    whole = log((0, "k:1"), (4, None))
    assert scene.compacted(whole, log((4, None), broker=2)) == scene.compacted(whole, log(broker=2)) == []
    assert scene.compacted(whole, log((0, "k:1"), broker=2)) == ["compacted"]


def test_a_record_that_a_consumer_misses_before_a_later_one_of_its_key_was_sent_is_found(scene: UpkeepScene) -> None:
    """The log of the end has all records; another leader may have been cleaned."""
    whole = log((0, "k:1"), (1, "k:2"), (2, "k:9"))
    scene.send("k:1", "k:2", at=0)
    scene.send("k:9", at=2)
    scene.read((1, "k:2"), until=2)
    assert scene.compacted(whole) == []
    scene.read((1, "k:2"), until=3)
    assert scene.compacted(whole) == ["complete"]
    early = UpkeepScene()
    early.send("k:1", "k:2", at=0)
    early.read((1, "k:2"), until=2)
    early.send("k:9", at=2)
    assert early.compacted(whole) == ["complete"]


def test_a_later_record_of_a_key_that_was_refused_replaces_nothing(scene: UpkeepScene) -> None:
    scene.send("k:1", "k:2", at=0)
    scene.send("k:9", at=-1, outcome=FAILED)
    scene.read((1, "k:2"), until=2)
    assert scene.compacted(log((0, "k:1"), (1, "k:2"))) == ["complete"]
