"""A test's broker with very many logs: other tasks of its event loop go on while it starts, is reset and stops."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.clients.admin.client import AdminClient
from odradek.testing import in_process_broker, in_process_cluster
from odradek.testing.process_directories import FEW_FILES
from tests.scenarios.turns_of_a_loop import LongestTurn, collector_as_when_served
from tests.soak import rounds

PER_TOPIC = 20
TOPICS = rounds(15, in_soak=100)


@pytest.mark.long
@pytest.mark.soak("a fork of 2,000 logs starts, is reset and stops", minutes=2)
@pytest.mark.timeout(180)
async def test_no_turn_is_long_while_a_fork_starts_is_reset_and_stops() -> None:
    async with in_process_broker() as broker:
        await broker.seed({f"topic-{number}": [b"a record"] for number in range(TOPICS)}, partitions=PER_TOPIC)
        snapshot = await broker.snapshot()
    turn = LongestTurn()
    with collector_as_when_served():
        await turn.begin()
        async with in_process_broker(snapshot=snapshot) as fork:
            assert fork.metadata.partition_count == TOPICS * PER_TOPIC
            await fork.reset()
            assert fork.metadata.partition_count == TOPICS * PER_TOPIC
        await turn.ended()
    snapshot.remove()
    assert turn.are_short()


@pytest.mark.parametrize("start", [in_process_broker, in_process_cluster])
async def test_a_directory_with_many_files_is_removed_in_a_thread(
    start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    unlink = os.unlink

    def noted(path: str, **options: Any) -> None:
        threads.append(threading.get_ident())
        unlink(path, **options)

    async with start() as running:
        async with AdminClient(running.bootstrap) as admin:
            await admin.create_topic(NewTopic("orders", FEW_FILES))
        monkeypatch.setattr(os, "unlink", noted)
    assert len(threads) > FEW_FILES
    assert threads.count(threading.get_ident()) <= FEW_FILES
