"""Batches that a target has are not missing, although its answer to the recorded fetch came too early to have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from odradek.clients.recording.conversation import Conversation
from odradek.clients.recording.decoding import decoded_request
from odradek.clients.recording.recording_file import Entry, Kind
from odradek.clients.recording.streams import CLIENT_ID
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest
from odradek.testing import in_process_broker
from tests.clients.recording.proxied import bootstrap, entries_of, proxied
from tests.clients.recording.workloads import (
    SETTINGS,
    Workload,
    a_group,
    create,
    fresh,
    readers_beside_writers,
    recording_of,
    replay,
    replay_entries,
    transactions,
)
from tests.patience import until
from tests.soak import rounds

SOAK_ROUNDS = 20
PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")


def that_do_not_wait(entries: list[Entry]) -> list[Entry]:
    """The recording with fetches that a target answers at once, whether it has records or not."""
    return [_at_once(entry) if entry.kind is Kind.REQUEST else entry for entry in entries]


def _at_once(entry: Entry) -> Entry:
    asked = Conversation().asked(entry.data)
    assert asked is not None
    decoded = decoded_request(asked, entry.data)
    if decoded is None or asked.api_key != ApiKey.FETCH:
        return entry
    return entry._replace(data=decoded.with_document({**decoded.document, "MaxWaitMs": 0}))


async def test_a_fetch_that_a_target_answers_too_early_hides_no_batch(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with in_process_broker(SETTINGS, journal=True) as upstream, proxied(upstream.bootstrap, file) as proxy:
        servers = bootstrap(proxy)
        await create(servers, "orders", 1)
        async with (
            AIOKafkaProducer(bootstrap_servers=servers) as producer,
            AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            reading = asyncio.ensure_future(consumer.getone())
            await until(lambda: [request for request in upstream.requests if request.api == "Fetch"])
            await producer.send_and_wait("orders", b"an order")
            await reading
    entries = that_do_not_wait(entries_of(file))
    async with in_process_broker(SETTINGS, journal=True) as target:
        differences, _ = await replay_entries(lambda: entries, target.bootstrap)
        late = [request for request in target.requests if request.client_id == CLIENT_ID and request.api == "Fetch"]
    assert differences == []
    assert late, "no fetch was answered too early: the test has shown nothing"


async def test_two_clusters_that_answer_fetches_at_different_times_are_equal(tmp_path: Path) -> None:
    entries = that_do_not_wait(entries_of(await recording_of(readers_beside_writers, tmp_path / "file")))
    async with fresh() as one, fresh() as other:
        differences, _ = await replay_entries(lambda: entries, one, other)
    assert differences == []


async def test_batches_that_a_target_does_not_get_are_missing_and_waited_for_once(tmp_path: Path) -> None:
    """The producer of the recording is left out."""

    async def write_then_read(servers: str) -> None:
        await create(servers, "orders", 1)
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for _ in range(3):
                await producer.send_and_wait("orders", b"an order")
        for _ in range(2):
            async with AIOKafkaConsumer("orders", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                await consumer.getone()

    entries = entries_of(await recording_of(write_then_read, tmp_path / "file"))
    producers = {entry.connection for entry in entries if entry.kind is Kind.REQUEST and entry.data[:2] == PRODUCE}
    without = [entry for entry in entries if entry.connection not in producers]
    async with in_process_broker(SETTINGS, journal=True) as target:
        differences, _ = await replay_entries(lambda: without, target.bootstrap, timeout_s=2)
        late: list[FetchRequest] = [
            request.body for request in target.requests if request.client_id == CLIENT_ID and request.api == "Fetch"
        ]
    assert {(difference.where, difference.found) for difference in differences} == {
        (f"Fetch.orders-0.batch[{offset}]", "nothing") for offset in range(3)
    }
    assert len(late) > 1
    assert sum(request.max_wait_ms > 0 for request in late) == 1


@pytest.mark.soak("20 recordings of each workload, each sent twice", minutes=20)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("workload", "count"),
    [
        (transactions, rounds(2, in_soak=SOAK_ROUNDS)),
        (a_group, rounds(1, in_soak=SOAK_ROUNDS)),
        (readers_beside_writers, rounds(2, in_soak=SOAK_ROUNDS)),
    ],
)
async def test_a_recording_of_odradek_never_differs_from_odradek(
    workload: Workload, count: int, tmp_path: Path
) -> None:
    for number in range(count):
        file = await recording_of(workload, tmp_path / f"{number}")
        for is_timed in (False, True):
            async with fresh() as target:
                differences, _ = await replay(file, target, is_timed=is_timed)
            assert differences == [], f"round {number}, timed: {is_timed}"
