"""Exceptions that a broker logs because nothing expects them: a mistake in its code, although it goes on. Errors of
disks, of the network, of the store and of the protocol are expected in a simulation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import structlog

from odradek.broker.metadata_store.interface import MetadataStoreError
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ProtocolError
from tests.simulation.history import History
from tests.simulation.loop import NODE, ProcessEnded
from tests.simulation.missteps import Finding, Misstep

UNEXPECTED = "unexpected"
"""The invariant."""
EXPECTED = (OSError, NetworkError, MetadataStoreError, ProtocolError, ProcessEnded)


@contextlib.contextmanager
def noted_in(history: History) -> Iterator[None]:
    """Meanwhile those exceptions are noted, whether or not the log shows them."""

    def note(event: str, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, EXPECTED):
            node = NODE.get()
            text = f"{event}: {error!r}"
            history.note(
                Misstep(process=node.name if node is not None else "nobody", finding=Finding(UNEXPECTED, text))
            )

    before: Any = structlog.get_config()["wrapper_class"]

    class Noting(before):  # type: ignore[misc]
        """The logger of the configuration, which tells of exceptions."""

        def exception(self, event: str, *arguments: Any, **details: Any) -> Any:
            return self.error(event, *arguments, **{"exc_info": True, **details})

        def error(self, event: str, *arguments: Any, **details: Any) -> Any:
            error = details.get("exc_info")
            note(event, sys.exc_info()[1] if error is True else error or None)
            return super().error(event, *arguments, **details)

    structlog.configure(wrapper_class=Noting)
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)
