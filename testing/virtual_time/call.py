"""A call that virtual time has scheduled, for a node loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from odradek.broker.background.background import Periodic


class Call:
    """`work`: the periodic work that it runs, if any."""

    __slots__ = ("_arguments", "_callback", "_cancelled", "_context", "is_cancelled", "work")

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None,
        cancelled: Callable[[], None],
    ) -> None:
        self._callback = callback
        self._arguments = arguments
        self._context = copy_context() if context is None else context
        self._cancelled = cancelled
        self.is_cancelled = False
        self.work = _work_of(arguments)

    def cancel(self) -> None:
        """See asyncio.Handle."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._cancelled()

    def run(self) -> None:
        """Calls the function, unless the call was cancelled."""
        if not self.is_cancelled:
            self._context.run(self._callback, *self._arguments)


def _work_of(arguments: tuple[Any, ...]) -> Periodic | None:
    """A node loop schedules its timers: the periodic work is what such a timer calls."""
    callback = getattr(arguments[0], "_callback", None) if arguments else None
    return callback if isinstance(callback, Periodic) else None
