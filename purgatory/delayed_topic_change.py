"""DelayedTopicChange: a CreateTopics, DeleteTopics or CreatePartitions request that waits for its change to finish.

The controller makes the change. The request is answered when the change has finished, or at the timeout; the change
continues after a timeout. Kafka: DelayedCreatePartitions, DelayedDeleteTopics.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedTopicChange(DelayedOperation):
    """Calls `on_response()` once. `has_ended` returns whether the change has finished."""

    __slots__ = ("has_ended", "on_response")

    def __init__(self, timeout_ms: int, has_ended: Callable[[], bool], on_response: Callable[[], object]) -> None:
        super().__init__(timeout_ms)
        self.has_ended = has_ended
        self.on_response = on_response

    def try_complete(self) -> bool:
        return self.has_ended() and self.force_complete()

    def on_complete(self) -> None:
        self.on_response()
