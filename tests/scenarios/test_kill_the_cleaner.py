"""kill -9 of the broker during a cleaning: the latest value of each key stays, at its offset, and aborted records stay
hidden. The next broker starts at once, perhaps while the cleaning process still runs, and continues to clean.

Partition 0 is large and is cleaned in a separate process, partition 1 is cleaned on the loop.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.clients.transactions import END_OF_PARTITION
from tests.patience import PATIENCE_S
from tests.soak import rounds
from tests.spawned_broker import SpawnedBroker, free_port, start_broker

KILLS = rounds(3, in_soak=20)
TOPIC, PARTITIONS, KEYS = "t", 2, 40
RECORDS, PADDING = (1800, 900), (1000, 100)
"""Records of each partition and round; the second has less than 1 MB of sealed segments."""
PAUSES_S = (0, 0.02, 0.1, 0.2, 0.4)
"""Pauses between the start of a cleaning and the kill. Most cleanings take half a second."""
GIVE_UP_S = 60
SETTINGS = {
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.io.max.bytes.per.second": "4e6",
    "log.cleanup.policy": "compact",
    "log.segment.bytes": "131072",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
Seen = tuple[str, str | None]


class World:
    """A broker and what was committed: `records` by partition and offset, `latest` by partition and key."""

    def __init__(self, data_dir: Path, chance: random.Random) -> None:
        self.data_dir, self.chance, self.port = data_dir, chance, free_port()
        self.records: list[dict[int, Seen]] = [{} for _ in range(PARTITIONS)]
        self.latest: list[dict[str, int]] = [{} for _ in range(PARTITIONS)]
        self.ends = [0] * PARTITIONS
        self.interrupted = 0
        self._written = 0
        self.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)

    def start(self, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker: SpawnedBroker = start_broker(self.data_dir, {**SETTINGS, **given}, port=self.port)

    def kill(self) -> None:
        self.broker.kill()
        self.broker.close()

    def _clean_when(self, dirty_ratio: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        resource.add_incremental_config(
            ConfigEntry("min.cleanable.dirty.ratio", dirty_ratio, incremental_operation=AlterConfigOpType.SET)
        )
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(20)

    def kill_amid_a_clean(self) -> None:
        self._clean_when("0.01")
        while not self.unfinished("t-0"):
            time.sleep(0.001)
        if self.interrupted:  # the first is killed at once: on a busy machine the cleaning ends during any pause
            time.sleep(self.chance.choice(PAUSES_S))
        self.kill()
        self.interrupted += bool(self.unfinished("t-0"))

    def unfinished(self, folder: str) -> list[str]:
        return [name for name in os.listdir(self.data_dir / folder) if name.endswith((".cleaned", ".swap"))]

    def write(self) -> None:
        """Transactions, a third of them aborted, and records without one. Nothing is cleaned meanwhile."""
        self._clean_when("1")
        plain = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap, "batch.size": 16384})
        self._put(plain, range(3))
        assert plain.flush(20) == 0
        transactional = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "x", "batch.size": 16384}
        )
        transactional.init_transactions(20)
        for turn in range(3, 12):
            transactional.begin_transaction()
            is_committed = turn % 3 != 0
            self._put(transactional, range(turn, turn + 1), is_committed)
            if is_committed:
                transactional.commit_transaction(20)
            else:
                transactional.flush(20)
                transactional.abort_transaction(20)
        self.ends = [self._end(partition) for partition in range(PARTITIONS)]

    def _put(self, producer: confluent_kafka.Producer, turns: range, is_committed: bool = True) -> None:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS[partition] // 12 * len(turns)):
                key = f"k{self.chance.randrange(KEYS)}"
                self._written += 1
                value = None if self.chance.random() < 0.02 else f"{self._written} ".ljust(PADDING[partition], "v")
                if not is_committed:
                    key, value = f"aborted {key}" if self.chance.random() < 0.5 else key, f"aborted {value}"
                noted = self._noted(partition, key, value) if is_committed else None
                producer.produce(TOPIC, value, key, partition, on_delivery=noted)
            producer.poll(0)

    def _noted(self, partition: int, key: str, value: str | None) -> Callable[[object, confluent_kafka.Message], None]:
        def noted(error: object, message: confluent_kafka.Message) -> None:
            offset = message.offset()
            assert error is None, error
            assert offset is not None
            self.records[partition][offset] = (key, value)
            self.latest[partition][key] = max(self.latest[partition].get(key, -1), offset)

        return noted

    def _end(self, partition: int) -> int:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "unused"})
        ends = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, partition), timeout=PATIENCE_S)
        consumer.close()
        return ends[1]

    def check(self) -> list[int]:
        """Checks that promises hold; returns the number of records that each partition still has."""
        counts = []
        for partition in range(PARTITIONS):
            assert self._end(partition) == self.ends[partition]
            seen = self._read(partition)
            written = self.records[partition]
            assert list(seen) == sorted(seen)
            assert seen == {offset: written.get(offset) for offset in seen}, "what was written there and committed"
            latest = self.latest[partition]
            assert {key: offset for offset, (key, _) in seen.items()} == latest, "the last of each key"
            counts.append(len(seen))
        return counts

    def _read(self, partition: int) -> dict[int, Seen]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0)])
        seen: dict[int, Seen] = {}
        while True:
            message = consumer.poll(20)
            assert message is not None, "the end of the partition is not reached"
            error, offset, key, value = message.error(), message.offset(), message.key(), message.value()
            if error is not None:
                assert error.code() == END_OF_PARTITION, error
                break
            assert offset is not None
            assert isinstance(key, bytes)
            assert offset not in seen
            seen[offset] = (key.decode(), value.decode() if isinstance(value, bytes) else None)
        consumer.close()
        return seen

    def is_clean(self) -> bool:
        """Whether all sealed segments are clean, by the checkpoint."""
        lines = (self.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()
        actives = [max(path.stem for path in (self.data_dir / f"t-{p}").glob("*.log")) for p in range(PARTITIONS)]
        return all(f"{TOPIC} {partition} {int(active)}" in lines for partition, active in enumerate(actives))


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < give_up, f"{what}: not within {GIVE_UP_S} s"
        time.sleep(0.002)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data", random.Random(12))
    yield world
    world.kill()


@pytest.mark.long
@pytest.mark.soak("20 kills amid a clean", minutes=2)
@pytest.mark.timeout(900)
def test_a_broker_killed_during_a_cleaning_keeps_the_latest_values_and_resumes(world: World) -> None:
    for number in range(KILLS):
        world.write()
        world.kill_amid_a_clean()
        if number % 2 == 0:
            world.start(log_cleaner_enable="false")
            assert not world.unfinished("t-0") + world.unfinished("t-1")
            world.check()
            world.kill()
        world.start()
        world.check()
    until(world.is_clean, "the clean goes on to its end")
    assert not world.unfinished("t-0") + world.unfinished("t-1")
    counts = world.check()
    assert all(count < len(written) / 4 for count, written in zip(counts, world.records, strict=True))
    assert world.interrupted > 0, "none of the kills came amid a clean"
    assert world.broker.terminate() == 0
