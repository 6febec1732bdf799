"""A full disk: a small tmpfs under the data directory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.python_clients import confluent_messages
from tests.patience import PATIENCE_S
from tests.spawned_broker import SpawnedBroker, spawned_broker, start_broker

MEBIBYTE = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """24 MiB of tmpfs; only root can mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def produce(broker: SpawnedBroker, values: list[bytes]) -> list[confluent_kafka.KafkaError | None]:
    """The outcome of each value, in order, up to the second refusal; the client does not retry."""
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "retries": 0,
            "message.timeout.ms": 10_000,
            "message.max.bytes": 2 * MEBIBYTE,
            "log_level": 0,
        }
    )
    for value in values:
        producer.produce("disk", value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(20)
        if sum(error is not None for error in outcomes) == 2:
            break
    return outcomes


def consume_all(broker: SpawnedBroker) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    partition = confluent_kafka.TopicPartition("disk", 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    consumer.assign([partition])
    values = [message.value() or b"" for message in confluent_messages(consumer, end)]
    consumer.close()
    return values


def test_a_full_disk_refuses_appends_until_space_is_free_and_serves_reads(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * MEBIBYTE))
    data = small_disk / "data"
    with spawned_broker(data, {"num.partitions": "1", "log.preallocate": "false"}) as broker:
        values = [b"%04d" % number + os.urandom(MEBIBYTE // 2) for number in range(40)]
        outcomes = produce(broker, values)
        kept = [value for value, error in zip(values, outcomes, strict=False) if error is None]
        refused = [error for error in outcomes if error is not None]
        assert kept
        assert {error.code() for error in refused} == {confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR}
        assert consume_all(broker) == kept, "reads go on"
        ballast.unlink()
        late = [b"late" + os.urandom(MEBIBYTE // 2) for _ in range(6)]
        assert produce(broker, late) == [None] * 6, "appends resume when there is room"
        assert consume_all(broker) == kept + late
        log = broker.log_text()
        assert "Traceback" not in log
        assert "No space left" in log
    with spawned_broker(data) as broker:
        assert consume_all(broker) == kept + late, "nothing torn is left behind"


def fill(disk: Path) -> None:
    """Uses all free space."""
    with (disk / "ballast").open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(MEBIBYTE))
    with (disk / "ballast").open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(64)):
            pass


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_broker_starts_on_a_full_disk_and_accepts_appends_once_space_is_free(
    small_disk: Path, ends_well: bool
) -> None:
    settings = {"num.partitions": "1", "log.preallocate": "false", "log.segment.bytes": str(MEBIBYTE)}
    data = small_disk / "data"
    first = start_broker(data, settings)
    kept = [b"%04d" % number + os.urandom(MEBIBYTE // 3) for number in range(12)]
    assert produce(first, kept) == [None] * 12
    if ends_well:
        assert first.terminate() == 0
        fill(small_disk)
    else:
        fill(small_disk)
        first.kill()
    first.close()

    broker = start_broker(data, settings)
    assert consume_all(broker) == kept, "reads are served"
    assert {error.code() for error in produce(broker, kept) if error is not None} == {
        confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
    }
    log = broker.log_text()
    assert "Traceback" not in log
    assert f"No space left on device: '{data}/disk-0/" in log
    fill(small_disk)  # what the start had removed freed space
    assert broker.terminate() == 1, "the next start must recover"
    assert re.search(rf"odradek: {data} is not marked as cleanly shut down: .*: '{data}/", broker.log_text())
    broker.close()

    with spawned_broker(data, settings) as broker:
        (small_disk / "ballast").unlink()
        late = [b"late" + os.urandom(MEBIBYTE // 3) for _ in range(4)]
        assert produce(broker, late) == [None] * 4
        assert consume_all(broker) == kept + late
    with spawned_broker(data, settings) as broker:
        assert consume_all(broker) == kept + late
