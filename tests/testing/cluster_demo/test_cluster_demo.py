"""The demo of a cluster: its clients lose nothing, and its picture shows what has happened."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

from odradek.testing import in_process_cluster
from odradek.testing.cluster_demo.__main__ import Demo, play, row
from odradek.testing.cluster_demo.clients import Consumer, Producer, Waiting
from odradek.testing.cluster_demo.picture import svg
from odradek.testing.cluster_demo.samples import (
    BEHIND,
    DOWN,
    IN_SYNC,
    LEADER,
    Acknowledgement,
    Event,
    Recording,
    Sample,
    consequences,
    seconds_without_leader,
)
from odradek.timer import ManualClock
from tests.patience import until

PACE = 0.2
SVG = "{http://www.w3.org/2000/svg}"


async def test_the_story_is_played_and_drawn(tmp_path: Path) -> None:
    out, picture = io.StringIO(), tmp_path / "demo.svg"
    recording = await play(out, picture, PACE, {"replica.lag.time.max.ms": 500})
    text = out.getvalue()
    assert "each read once and in order" in text
    done = [event.text for event in recording.events if event.is_done_to_it]
    assert len(done) == 7
    seen = [event.text for event in recording.events if not event.is_done_to_it]
    assert "there is no leader" in seen
    assert "in sync: 1, 2, 3" in seen
    assert all(line in text for line in (*done, *seen))
    assert max(sample.purgatory_size for sample in recording.samples) > 5
    assert max(each.waited_s for each in recording.acknowledgements) > 0.3
    root = ElementTree.fromstring(picture.read_text())
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert all(line in texts for line in done)
    assert {"offsets", "log end of the leader", "high watermark"} <= set(texts)


async def test_records_that_were_lost_or_misplaced_would_be_noticed() -> None:
    async with in_process_cluster(brokers=1) as cluster:
        demo = Demo(cluster, io.StringIO(), 1.0)
        recording = Recording([1], [], [Acknowledgement(1.0, 0.1)], [])
        assert demo.verdict(recording).startswith("1 records acknowledged")
        demo._offered[0].append(b"0:0")
        with pytest.raises(AssertionError, match="records were lost, repeated or reordered"):
            demo.verdict(recording)


async def test_a_producer_repeats_what_may_have_been_lost_and_the_partition_stores_it_once() -> None:
    async with in_process_cluster() as cluster:
        await cluster.create_topic("t")
        clock = ManualClock()
        acknowledged: list[Waiting] = []
        producer = Producer(cluster.bootstrap, "t", acknowledged.append, clock)
        consumer = Consumer(cluster.bootstrap, "t", lambda consumer: len(consumer.values) >= 20)
        running = [asyncio.create_task(client.run()) for client in (producer, consumer)]
        leader = await cluster.wait_for_leader("t", 0)
        for follower in set(cluster.ids) - {leader}:
            cluster.freeze_replication(follower)
        for number in range(20):
            producer.offer(b"%d" % number)
        led = cluster.replica(leader, "t", 0)
        assert led is not None
        await until(lambda: led.log.state.log_end_offset == 5)
        assert acknowledged == []
        for follower in set(cluster.ids) - {leader}:
            cluster.thaw(follower)
        cluster.kill(leader)  # some followers may have some of the five
        await until(lambda: len(acknowledged) == 20)
        for client in (producer, consumer):
            client.end()
        await asyncio.gather(*running)
        assert [record.value for record in acknowledged] == consumer.values == [b"%d" % n for n in range(20)]
        assert producer.is_idle
        for broker_id in set(cluster.ids) - {leader}:
            replica = cluster.replica(broker_id, "t", 0)
            assert replica is not None
            (known,) = replica.log.producers.state.producers.values()
            assert known.last_timestamp == clock.wall_ms(), "a broker that starts forgets a producer of 1970"


def a_sample(at_s: float, leader: int | None, isr: tuple[int, ...], waiting: int = 0) -> Sample:
    roles = {1: LEADER if leader == 1 else DOWN, 2: IN_SYNC if 2 in isr else BEHIND}
    end = None if leader is None else 10
    return Sample(at_s, leader, isr, roles, end, end, 5, waiting)


def test_the_consequences_of_what_is_done() -> None:
    before, after = a_sample(0, 1, (1, 2)), a_sample(1, None, (1, 2))
    assert list(consequences(before, after)) == ["there is no leader"]
    assert list(consequences(after, a_sample(2, 2, (2,)))) == ["broker 2 leads", "in sync: 2"]
    assert list(consequences(before, before)) == []
    assert seconds_without_leader([before, after, a_sample(1.5, None, ()), a_sample(3, 1, (1,))]) == 2


def test_a_row_of_the_terminal() -> None:
    assert row(a_sample(1.25, 1, (1, 2))) == "  1.2s       10        10      5  1 2"
    assert row(a_sample(2, None, (2,), 9)) == "  2.0s        -         -      5  . 2       ### 9"
    assert row(a_sample(3, 1, (1,), 1000)).endswith(f"  {'#' * 40} 1000")


def test_a_picture_of_little() -> None:
    samples = [a_sample(0, 1, (1, 2)), a_sample(1, None, (1, 2)), a_sample(2, 1, (1,))]
    root = ElementTree.fromstring(svg(Recording([1, 2], samples, [], [Event(1, "a < b & c", True)])))
    assert "a < b & c" in [element.text for element in root.iter(f"{SVG}text")]
    lanes = [element.get("class") for element in root.iter(f"{SVG}rect")]
    assert lanes == ["leader", "in-sync", "out-of-sync", "down", "leader", "down", "leader", "in-sync", "out-of-sync"]
