"""How a handler responds; the letters are those of request_context.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from odradek.broker.requests.request_context import RequestContext

Handler = Callable[[Any, RequestContext], Any]


class HandlerKind(Enum):
    PLAIN = "at once, or with a PendingResponse: (a) to (e)"
    STEPS = "a generator: (f)"
    TASK = "a coroutine: (g)"


def kind_of(handler: Handler) -> HandlerKind:
    if inspect.iscoroutinefunction(handler):
        return HandlerKind.TASK
    return HandlerKind.STEPS if inspect.isgeneratorfunction(handler) else HandlerKind.PLAIN
