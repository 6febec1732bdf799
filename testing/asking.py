"""What a broker and a cluster of tests have in common: faults, the journal of requests, waiting for a request, time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from odradek.testing.faults.arguments import Selected
from odradek.testing.virtual_time.controls import TimeControls

if TYPE_CHECKING:
    from odradek.testing.calls import Calls
    from odradek.testing.faults import Fault, Faults, Journal, Request

WITHIN_S = 10.0


class Asking:
    """`faults` are those of this broker, or of all brokers of this cluster."""

    faults: Faults

    @property
    def calls(self) -> Calls:
        """The calls of coroutine functions, for those that nobody awaited."""
        return self.faults.calls

    @property
    def requests(self) -> Journal:
        """The latest requests, with their responses. They are kept from the first use on, or from the start with
        `journal=True`.
        """
        self.faults.journal.is_on = True
        return self.faults.journal

    async def request(
        self, *, within: float = WITHIN_S, answered: bool = False, **selected: Unpack[Selected]
    ) -> Request:
        """Waits for a request: the oldest `selected` one in the journal that no earlier call has returned, or else the
        next one. `answered`: and for its response. Raises NoSuchRequest after `within` seconds, and ValueError.
        """
        return await self.faults.wait_for_request(selected, within, answered=answered)

    async def wait_for_hits(self, fault: Fault, hits: int = 1, *, within: float = WITHIN_S) -> None:
        """Waits until a fault was hit so many times, by requests or by accesses to the disk. Raises NotReached after
        `within` seconds.
        """
        await fault.wait(hits, within)


class BrokerOrCluster(TimeControls, Asking):
    """Of tests."""
