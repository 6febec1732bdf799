"""What a broker and a cluster of tests have in common: faults, the journal of requests, and waiting for a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.broker.testing.faults.faults import selector_of

if TYPE_CHECKING:
    from odradek.broker.testing.faults import Faults, Journal, Request

WITHIN_S = 10.0


class Asking:
    """`faults` are those of this broker, or of all brokers of this cluster."""

    faults: Faults

    @property
    def requests(self) -> Journal:
        """The latest requests, with their responses. They are kept from the first use on, or from the start with
        `journal=True`.
        """
        self.faults.journal.is_on = True
        return self.faults.journal

    async def request(
        self,
        *,
        api: str | None = None,
        client_id: str | None = None,
        user: str | None = None,
        topic: str | None = None,
        topic_id: UUID | str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        broker: int | None = None,
        when: Callable[[Request], object] | None = None,
        within: float = WITHIN_S,
        answered: bool = False,
    ) -> Request:
        """Waits for a request: the oldest in the journal that no earlier call has returned, or else the next one.
        `answered`: and for its answer. Raises NoSuchRequest after `within` seconds, and ValueError.
        """
        selected: dict[str, Any] = {
            "api": api,
            "client_id": client_id,
            "user": user,
            "topic": topic,
            "topic_id": topic_id,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "broker": broker,
            "when": when,
        }
        what = ", ".join(f"{name}={value!r}" for name, value in selected.items() if value is not None)
        return await self.faults.journal.wait(selector_of(**selected), within, what, answered=answered)
