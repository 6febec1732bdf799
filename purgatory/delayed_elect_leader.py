"""DelayedElectLeader: an ElectLeaders request that waits until this broker knows the elected leaders.

The controller has elected them, and has told the brokers. The request is answered when the broker's metadata has every
one of them, or at the timeout. Kafka: DelayedElectLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from odradek.purgatory.delayed_operation import DelayedOperation


class DelayedElectLeader(DelayedOperation):
    """`expected` are the elected leaders by partition, `known_leader` returns the leader that the broker knows. Calls
    `on_response(late)` once, with the partitions whose leader the broker does not know.
    """

    __slots__ = ("_known_leader", "_on_response", "_waiting")

    def __init__(
        self,
        timeout_ms: int,
        expected: Mapping[Hashable, int],
        known_leader: Callable[[Hashable], int | None],
        on_response: Callable[[list[Hashable]], object],
    ) -> None:
        super().__init__(timeout_ms)
        self._waiting = dict(expected)
        self._known_leader = known_leader
        self._on_response = on_response

    def try_complete(self) -> bool:
        self._look()
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        self._look()
        self._on_response(list(self._waiting))

    def _look(self) -> None:
        for partition, leader in list(self._waiting.items()):
            if self._known_leader(partition) == leader:
                del self._waiting[partition]
