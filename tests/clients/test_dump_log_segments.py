"""Kafka's own DumpLogSegments reads every file that the broker wrote and finds no error."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as Topic

from tests.clients.workload import CODECS, PARTITIONS, Sent, binary_records
from tests.spawned_broker import spawned_broker

SETTINGS = {
    "log.segment.bytes": "8000",
    "log.index.interval.bytes": "300",
    "log.index.size.max.bytes": "2000",
    "num.partitions": str(PARTITIONS),
}
RECORDS = 1503
SENT = 1501
"""All but the largest."""
DUMPED = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
COMPLAINTS = ("isvalid: false", "Non-consecutive", "mismatch", "Mismatch", "Exception", "orrupt", "out of order")


def produce(bootstrap: str) -> None:
    """Produces small idempotent and plain batches with each codec, with CreateTime and with LogAppendTime."""
    records = [record for record in binary_records(RECORDS) if len(record.value or b"") < 4000]
    for codec in CODECS:
        send(bootstrap, f"idempotent-{codec}", records, codec, True)
    send(bootstrap, "append-time", records, "lz4", True)
    send(bootstrap, "plain", records, "none", False)


def send(bootstrap: str, topic: str, records: list[Sent], codec: str, idempotent: bool) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.num.messages": 40,
            "acks": "all",
            "enable.idempotence": idempotent,
        }
    )
    outcomes: list[object] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, _: outcomes.append(error),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert outcomes == [None] * len(records)


def delete_some(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cut = [confluent_kafka.TopicPartition("idempotent-none", partition, 251) for partition in range(PARTITIONS)]
    for future in admin.delete_records(cut).values():
        assert future.result(20).low_watermark == 251


def dump(tools: list[str], files: list[Path], *options: str) -> str:
    command = [*tools, "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout


def assert_nothing_is_wrong(tools: list[str], data: Path) -> Counter[str]:
    """Dumps all files of all partitions; returns the number of records of each topic."""
    files = sorted(path for path in data.glob("*-[0-9]*/*") if path.suffix in DUMPED)
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    assert len(indexes) > 2 * len({path.parent for path in files}), "several segments"
    text = dump(tools, files, "--deep-iteration")
    sanity = dump(tools, indexes, "--index-sanity-check")
    assert sanity.count("passed sanity check") + sanity.count(" is empty.") == len(indexes), sanity
    for complaint in COMPLAINTS:
        assert complaint not in text + sanity, [line for line in text.splitlines() if complaint in line][:5]
    dumped = [part.partition("\n") for part in text.split("Dumping ")[1:]]
    assert [path for path, _, _ in dumped] == [str(path) for path in files]
    counts: Counter[str] = Counter()
    for path, _, content in dumped:
        counts[Path(path).parent.name.rpartition("-")[0]] += content.count("| offset: ")
    return counts


def test_every_file_is_valid_after_stops_and_kills(java_tools: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    with spawned_broker(data, SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        created = admin.create_topics(
            [Topic("append-time", PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})]
        )
        created["append-time"].result(20)
        produce(broker.bootstrap)
        whole = assert_nothing_is_wrong(java_tools, data)  # files of a running broker
        assert set(whole.values()) == {SENT}
        assert len(whole) == len(CODECS) + 2
        delete_some(broker.bootstrap)
    assert assert_nothing_is_wrong(java_tools, data)["plain"] == SENT
    with spawned_broker(data, SETTINGS) as broker:
        produce(broker.bootstrap)
        broker.kill()
    with spawned_broker(data, SETTINGS):
        pass
    twice = assert_nothing_is_wrong(java_tools, data)
    assert twice["plain"] == 2 * SENT
    assert set(twice.values()) == {2 * SENT} | {twice["idempotent-none"]}


@pytest.mark.parametrize("damage", ["record", "index"])
def test_the_same_check_finds_a_damaged_file(java_tools: list[str], tmp_path: Path, damage: str) -> None:
    data = tmp_path / "data"
    with spawned_broker(data, SETTINGS) as broker:
        send(broker.bootstrap, "t", list(binary_records(600))[1:500], "none", True)
    suffix, place = {"record": (".log", 2000), "index": (".index", 7)}[damage]
    path = sorted((data / "t-0").glob(f"*{suffix}"))[0]
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(AssertionError):
        assert_nothing_is_wrong(java_tools, data)
