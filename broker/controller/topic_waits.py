"""Requests that wait for a change of topics to complete: Kafka's purgatory `topic`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from odradek.purgatory import DelayedOperationPurgatory, DelayedTopicChange


class TopicWaits:
    """Parks requests until a change is complete. Needs a running event loop."""

    def __init__(self, purgatory: DelayedOperationPurgatory) -> None:
        self._purgatory = purgatory

    async def wait(self, change: asyncio.Task[Any], timeout_ms: int, topics: Sequence[str]) -> None:
        """Returns when the change is complete, or after `timeout_ms`. Parks under the topics' names; at least one is
        required.
        """
        purgatory = self._purgatory
        keys = tuple(dict.fromkeys(topics))
        answered = asyncio.get_running_loop().create_future()
        operation = DelayedTopicChange(timeout_ms, change.done, lambda: answered.set_result(None))

        def ended(_change: asyncio.Task[Any]) -> None:
            for key in keys:
                purgatory.completions.add(purgatory, key)

        change.add_done_callback(ended)
        purgatory.try_complete_else_watch(operation, keys)
        try:
            await answered
        finally:
            operation.abandon()
