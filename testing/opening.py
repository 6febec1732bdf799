"""The ways into the kit for `async with`; blocking.py has those for `with`. The wrong one is an error that names the
right one.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

ANOTHER_LOOP = (
    "the broker runs on another event loop: give its fixture and the test the same loop scope, or use BrokerThread or "
    "ClusterThread, whose methods block"
)

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class Opening(AbstractAsyncContextManager[T], Generic[T]):
    """What such a function returns: to be used with `async with`."""

    def __init__(self, again: Callable[[], AbstractAsyncContextManager[T]], name: str, blocking: str) -> None:
        """`again` makes a context manager, which is entered once."""
        self._again = again
        self._opened = again()
        self._wrong = (
            f"{name}() is used with `async with {name}(...) as x`; for blocking clients: `with {blocking}(...) as x`"
        )

    async def __aenter__(self) -> T:
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """As a decorator of a coroutine function, which then runs within."""

        @functools.wraps(function)
        async def within(*args: Any, **kwargs: Any) -> Any:
            async with self._again():
                return await function(*args, **kwargs)

        return within  # type: ignore[return-value]

    if not TYPE_CHECKING:  # checkers find these mistakes themselves

        def __enter__(self) -> NoReturn:
            raise TypeError(self._wrong)

        def __exit__(self, *_: object) -> None:
            """Never called."""

        def __await__(self) -> NoReturn:
            raise TypeError(self._wrong)

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name}: nothing was started yet. {self._wrong}")


def opened_with_async(
    blocking: str,
) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, Opening[T]]]:
    """As contextlib.asynccontextmanager. `blocking` is what a test with blocking clients uses instead."""

    def decorate(function: Callable[P, AsyncIterator[T]]) -> Callable[P, Opening[T]]:
        manager = asynccontextmanager(function)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
            return Opening(partial(manager, *args, **kwargs), function.__name__, blocking)

        return called

    return decorate
