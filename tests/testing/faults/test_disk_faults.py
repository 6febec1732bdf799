"""Disks that are full, slow to sync, or failing: what a service sees of them."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.testing import BrokerThread, Faults, UnusedFaults
from odradek.testing.faults import disk
from tests.patience import block_until
from tests.testing.faults.test_selected_items import fetch
from tests.wire.blocking_client import Client
from tests.wire.records import codes
from tests.wire.requests import produce_to as produce

FAILED = int(ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_full_disk_refuses_the_records_of_one_partition(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(disk="full", topic="orders", partition=1, times=1)
    first = codes(client.ask(produce({"orders": [0, 1], "other": [0]}), 9))
    assert (first["orders", 0], first["other", 0]) == (0, 0)
    assert first["orders", 1] != 0
    assert fault.hits == 1


def test_a_disk_takes_some_bytes_before_it_is_full(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(disk="full", topic="orders", after_bytes=200)
    answered = [codes(client.ask(produce({"orders": [0]}), 9))["orders", 0] for _ in range(4)]
    assert answered[:2] == [0, 0], "a batch has 73 bytes"
    assert 0 not in answered[2:]
    assert fault.hits >= 1
    fault.remove()


def test_a_failing_read_fails_the_fetch(broker: BrokerThread, client: Client) -> None:
    client.ask(produce({"orders": [0]}, value=b"v" * 300_000), 9)
    fault = broker.faults.add(disk="fail read", topic="orders", path="*.log")
    asked = fetch("orders", [0])
    asked.topics[0].partitions[0].partition_max_bytes = 1_000_000
    answered = client.ask(asked, 12).responses[0].partitions[0]
    assert (answered.error_code, bytes(answered.records or b"")) == (FAILED, b"")
    assert fault.hits >= 1


def test_a_failing_read_of_what_is_in_memory_says_why_it_was_not_hit(broker: BrokerThread, client: Client) -> None:
    client.ask(produce({"orders": [0]}), 9)
    fault = broker.faults.add(disk="fail read", topic="orders")
    assert client.ask(fetch("orders", [0]), 12).responses[0].partitions[0].error_code == 0
    with pytest.raises(UnusedFaults, match=r"never hit: the latest records are read from memory, .*tail_bytes=0"):
        broker.faults.check()
    fault.remove()
    with BrokerThread(odradek_log_tail_bytes=0) as other, Client(other.bootstrap) as reader:
        reader.create("orders")
        reader.ask(produce({"orders": [0]}), 9)
        other.faults.add(disk="fail read", topic="orders")
        assert reader.ask(fetch("orders", [0]), 12).responses[0].partitions[0].error_code == FAILED


def test_a_slow_fsync_delays_what_waits_for_it() -> None:
    with BrokerThread(log_flush_interval_messages=1) as broker, Client(broker.bootstrap) as client:
        client.create("orders")
        broker.requests.clear()
        fault = broker.faults.add(disk="slow sync", topic="orders", hold=True)
        client.send(produce({"orders": [0]}), 9)
        broker.wait_for_hits(fault)
        block_until(lambda: fault.held)
        with Client(broker.bootstrap) as other:
            other.ask(MetadataRequest(topics=None), 9)
            assert broker.requests[0].answered_ms is None, "what is not synced is not acknowledged"
        fault.release()
        assert codes(client.receive()) == {("orders", 0): 0}
        fault.remove()
        slow = broker.faults.add(disk="slow sync", topic="orders", delay=0.2)
        began = time.monotonic()
        assert codes(client.ask(produce({"orders": [0]}), 9)) == {("orders", 0): 0}
        assert time.monotonic() - began >= 0.19
        assert slow.hits >= 1


def test_a_failing_fsync_is_not_acknowledged() -> None:
    with BrokerThread(log_flush_interval_messages=1) as broker, Client(broker.bootstrap) as client:
        client.create("orders")
        fault = broker.faults.add(disk="fail sync", topic="orders")
        assert codes(client.ask(produce({"orders": [0]}), 9))["orders", 0] != 0
        assert fault.hits >= 1


def test_an_unused_fault_of_a_disk_fails_the_test() -> None:
    with (
        pytest.raises(UnusedFaults, match=r"add\(topic='orders', disk='fail sync'\) was never hit"),
        BrokerThread() as broker,
    ):
        broker.faults.add(disk="fail sync", topic="orders")


# The files themselves


def opened(faults: Faults, path: Path) -> Any:
    return faults.files().open(str(path), create=True)


def test_faults_of_files_select_by_topic_partition_and_path(tmp_path: Path) -> None:
    faults = Faults()
    for folder in ("orders-0", "orders-1", "orders-x-0", "orders-0.abc-delete"):
        (tmp_path / folder).mkdir()
    faults.add(disk="fail read", topic="orders", partition=0, path="*.log")
    outcomes: dict[str, int | None] = {}
    for name in (
        "orders-0/0.log",
        "orders-0/0.index",
        "orders-1/0.log",
        "orders-x-0/0.log",
        "orders-0.abc-delete/0.log",
    ):
        try:
            opened(faults, tmp_path / name).read(0, 1)
            outcomes[name] = None
        except OSError as error:
            outcomes[name] = error.errno
    assert outcomes == {
        "orders-0/0.log": errno.EIO,
        "orders-0/0.index": None,
        "orders-1/0.log": None,
        "orders-x-0/0.log": None,
        "orders-0.abc-delete/0.log": errno.EIO,
    }


@pytest.mark.parametrize("kind", ["full", "fail sync"])
def test_a_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    faults = Faults()
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    fault = faults.add(disk=kind, path="checkpoint")
    with pytest.raises(OSError, match="checkpoint"):
        faults.files().replace_file(str(path), b"new")
    assert (path.read_bytes(), fault.hits) == (b"old", 1)
    fault.remove()
    faults.files().replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"


def test_a_held_fsync_of_a_thread_ends_when_the_fault_is_removed(tmp_path: Path) -> None:
    faults = Faults()
    fault = faults.add(disk="slow sync", hold=True)
    file = opened(faults, tmp_path / "0.log")
    syncing = threading.Thread(target=file.sync)
    syncing.start()
    block_until(lambda: fault.held == 1)
    fault.remove()
    syncing.join(20)
    assert not syncing.is_alive()
    assert fault.held == 0


def test_an_fsync_that_nobody_releases_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MOST_HELD_S", 0.05)
    faults = Faults()
    fault = faults.add(disk="slow sync", hold=True)
    with pytest.raises(OSError, match=r"add\(hold=True, disk='slow sync'\) was not released for 0.05 s"):
        opened(faults, tmp_path / "0.log").sync()
    assert fault.held == 0


def test_the_last_access_counts_as_the_nth(tmp_path: Path) -> None:
    faults = Faults()
    fault = faults.add(disk="full", nth=2, path="*.log")
    file = opened(faults, tmp_path / "0.log")
    file.write([b"some"], 0)
    with pytest.raises(OSError, match="No space left"):
        file.write([b"more"], 4)
    file.write([b"more"], 4)
    assert (fault.hits, file.read(0, 8)) == (1, b"somemore")
