"""Work that one request can make long, cut into steps: a generator that yields where others may have their turn.

A step is a bounded piece of work, of a millisecond or two. `finished` does all of it at once, `in_turns` one step a
turn of the event loop; the value is what the generator returns. Between two steps anybody may change anything: what
must be seen whole belongs into one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

Steps = Generator[None, None, T]

ITEMS_PER_STEP = 300
"""How many items of some microseconds each make a step."""
CHARACTERS_PER_ITEM = 64
ITEMS_PER_LOOK = 5000
"""How many items that are only looked up in a dict make a step."""
LEAST_MEMORY_OF_REQUEST = 4 << 20
MEMORY_PER_BYTE = 18
"""An array of int32 takes 10 bytes of memory for each of its bytes on the wire; so does about everything that clients
name by the thousand. Names are charged for with what looks them up and answers them, see protocol/element_sizes.py."""


def finished(steps: Steps[T]) -> T:
    """The value, now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def memory_of_request(size: int) -> int:
    """How many bytes of memory may be made of a request of `size` bytes, beside its frame and its written answer.

    One that is charged for more is refused.
    """
    return LEAST_MEMORY_OF_REQUEST + MEMORY_PER_BYTE * size


class Pace:
    """Counts items through nested loops: `if pace.step_ends(): yield`. What costs more than one counts as several."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ITEMS_PER_STEP

    def step_ends(self, items: int = 1) -> bool:
        self._left -= items
        if self._left > 0:
            return False
        self._left = ITEMS_PER_STEP
        return True


class EachMade(Generic[R]):
    """`[make(item) for item in items]`, each of them made when it is looked at, and anew each time."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Sequence[Any], make: Callable[[Any], R]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._items)


def each_when_written(items: Sequence[Any], make: Callable[[Any], R]) -> Any:
    """An array of an answer: a list, or of very many elements none that would take memory before they are written."""
    return EachMade(items, make) if len(items) > ITEMS_PER_STEP else [make(item) for item in items]


def each_in_steps(items: Iterable[T], make: Callable[[T], R], pace: Pace | None = None) -> Steps[list[R]]:
    """`[make(item) for item in items]`; `pace` is the one that loops around this share with it."""
    pace = pace or Pace()
    made = []
    for item in items:
        made.append(make(item))
        if pace.step_ends(items_of(item) if isinstance(item, str) else 1):
            yield
    return made


def items_of(name: str) -> int:
    """What the work on a name counts as: it may be hashed, decoded and written character by character."""
    return 1 + len(name) // CHARACTERS_PER_ITEM


def once(items: Sequence[H]) -> Steps[list[H]]:
    """Each item once, where it comes first. A step looks at very many: most may be the same."""
    found: dict[H, None] = {}
    for start in range(0, len(items), ITEMS_PER_LOOK):
        if start:
            yield
        found.update(dict.fromkeys(items[start : start + ITEMS_PER_LOOK]))
    return list(found)


async def in_steps(steps: Steps[T]) -> T:
    """The value of a coroutine's own steps; others have their turn between any two."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await asyncio.sleep(0)


async def others_between(items: Iterable[T], cost: int = 1) -> AsyncIterator[T]:
    """The items, for a coroutine that may go on with the next ones without ever waiting for anything.

    `cost`: what the work on one of them counts as, in items of a step.
    """
    pace = Pace()
    for item in items:
        yield item
        if pace.step_ends(cost):
            await asyncio.sleep(0)


def let_go(message: Any) -> Steps[None]:
    """Empties the long arrays of a message that nobody needs any more: freeing a million objects takes its time, too.

    Numbers stay: they are freed quickly, and others may have taken over their array as it is.
    """
    for field in message.__schema__.fields:
        if field.struct_class is None and field.element not in ("string", "bytes"):
            continue
        held = getattr(message, field.attribute)
        if not isinstance(held, list):
            continue
        may_be_long = has_arrays(field.struct_class)
        if len(held) > ITEMS_PER_STEP:
            yield from emptied(held, may_be_long)
        elif may_be_long:
            for each in held:
                yield from let_go(each)


def has_arrays(structure: Any) -> bool:
    """Whether messages of this class (None: no message) may be long themselves."""
    return structure is not None and any(field.type == "array" for field in structure.__schema__.fields)


def emptied(held: list[Any], has_arrays: bool = False) -> Steps[None]:
    """Takes everything out of a list; `has_arrays`: of messages that may be long themselves."""
    while held:
        if has_arrays:
            for each in held[-ITEMS_PER_STEP:]:
                yield from let_go(each)
        del held[-ITEMS_PER_STEP:]
        yield
