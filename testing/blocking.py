"""A broker or a cluster on an event loop in a thread of its own, for blocking clients.

(A) `blocking` makes a method of the thread from one of what is inside: a coroutine runs on its loop, a plain function
    is called in the thread, and the caller waits for the result.
(B) `anywhere` makes one from a plain function that any thread may call, also after the end.

Both keep the arguments and the result, for checkers too, and the documentation.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, overload

from odradek.testing.asking import Asking, BrokerOrCluster
from odradek.testing.failures import explain
from odradek.testing.loop_thread import LoopThread
from odradek.testing.right_calls import NamesTheRightCall
from odradek.testing.virtual_time.controls import AN_HOUR_S, Span, decided, name_of

if TYPE_CHECKING:
    from odradek.testing.faults import Faults, Journal

T = TypeVar("T")
P = ParamSpec("P")
Inside = TypeVar("Inside", bound=BrokerOrCluster)


@overload
def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]: ...
@overload
def blocking(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]: ...
def blocking(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """See (A)."""
    name, is_coroutine = method.__name__, inspect.iscoroutinefunction(inspect.unwrap(method))

    @functools.wraps(method)
    def call(thread: InThread[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        of_inside = getattr(thread._inside, name)
        if is_coroutine:
            return thread._wait_for(of_inside(*args, **kwargs))
        return thread._in_thread(of_inside, *args, **kwargs)

    return call


def anywhere(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """See (B)."""
    name = method.__name__

    @functools.wraps(method)
    def call(thread: InThread[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(thread._inside, name)(*args, **kwargs)
        return found

    return call


class InThread(NamesTheRightCall, Generic[Inside]):
    """Used with `with`. `ASYNC` is what an asynchronous test uses instead."""

    ASYNC: str
    _thread: LoopThread[Inside]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            explain(error, self.faults.calls)
            self.faults.clear()
        self._thread.stop()

    if not TYPE_CHECKING:  # checkers find this mistake themselves

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(
                f"{name} blocks: `with {name}(...) as x`; in an asynchronous test: `async with {self.ASYNC}(...)`"
            )

        async def __aexit__(self, *_: object) -> None:
            """Never called."""

    @property
    def _inside(self) -> Inside:
        return self._thread.inside

    @abstractmethod
    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of what is inside, on its loop, and returns its result."""

    def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async def called() -> T:
            return function(*args, **kwargs)

        return self._thread.call(called())

    @property
    def faults(self) -> Faults:
        """See Asking."""
        return self._inside.faults

    @property
    def requests(self) -> Journal:
        """See Asking."""
        return self._inside.requests

    request = blocking(Asking.request)
    wait_for_hits = blocking(Asking.wait_for_hits)

    def advance(self, by: Span, *, keep_members: bool = False) -> None:
        """See TimeControls."""
        self._thread.call(self._inside.advance(by, keep_members=keep_members))

    def advance_until(
        self, condition: Callable[[], object], *, within: Span = AN_HOUR_S, what: str = "", keep_members: bool = False
    ) -> None:
        """See TimeControls. The condition is called in a thread, so it may use a blocking client."""
        until = partial(self._inside.advance_until, partial(asyncio.to_thread, decided, condition), within=within)
        self._thread.call(until(what=what or name_of(condition), keep_members=keep_members))
