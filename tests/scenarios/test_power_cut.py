"""A power cut under the same producer: unsynced data is lost. kill -9 keeps the page cache, so it cannot reveal that an
fsync is missing."""

from __future__ import annotations

import random
import threading

import pytest

from odradek.testing import BrokerThread
from tests.memory_files import ForgetfulFiles
from tests.scenarios.numbered_producer import NumberedProducer, read_all
from tests.soak import rounds

ROUNDS = rounds(2, in_soak=25)
SETTINGS = {"log.segment.bytes": "60000", "num.partitions": "1", "log.flush.offset.checkpoint.interval.ms": "50"}


def cut_power(files: ForgetfulFiles, source: random.Random, flush_messages: int) -> tuple[list[int], ForgetfulFiles]:
    """The numbers acknowledged before the cut, and the disk after it; later acknowledgments do not count."""
    settings = {**SETTINGS, "log.flush.interval.messages": str(flush_messages)}
    with BrokerThread(settings, data_dir="/data", files=files) as broker:
        producer = NumberedProducer(broker.bootstrap)
        try:
            threading.Event().wait(0.2 + source.random() / 2)
            while not producer.acknowledged:
                threading.Event().wait(0.01)
            acknowledged = list(producer.acknowledged)

            async def cut() -> ForgetfulFiles:
                return files.crash(source)

            after = broker.call(cut())
        finally:
            producer.finish()
        assert not producer.failures
    return acknowledged, after


@pytest.mark.soak("25 power cuts", minutes=1)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_acknowledged_record_is_lost_or_duplicated_after_a_power_cut(seed: int) -> None:
    source = random.Random(seed)
    acknowledged, after = cut_power(ForgetfulFiles(), source, flush_messages=1)
    with BrokerThread(SETTINGS, data_dir="/data", files=after) as broker:
        read = read_all(broker.bootstrap)
    assert read == list(range(len(read))), "in order, each once, none left out"
    assert set(acknowledged) <= set(read)


def test_without_flushes_the_same_power_cut_loses_acknowledged_records() -> None:
    """Shows that the test above can fail: Kafka's default leaves durability to replication."""
    acknowledged, after = cut_power(ForgetfulFiles(), random.Random(1), flush_messages=2**62)
    with BrokerThread(SETTINGS, data_dir="/data", files=after) as broker:
        assert not set(acknowledged) <= set(read_all(broker.bootstrap))
