"""Work that a request can make long, cut into steps: a generator that yields where other work may run.

A step is a bounded piece of work, of a millisecond or two. `finished` does all steps at once, `Turns.take` one step per
turn of the event loop; both return what the generator returns. Any state may change between two steps: work that needs
a consistent view must be done within one step.
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
"""How many items of some microseconds each make up a step."""
CHARACTERS_PER_ITEM = 64
ITEMS_PER_LOOK = 5000
"""How many items make up a step if each is only looked up in a dict."""
LEAST_MEMORY_OF_REQUEST = 4 << 20
MEMORY_PER_BYTE = 18
"""An array of int32 takes 10 bytes of memory per byte on the wire, and so does about everything that clients name by
the thousand. Names are charged together with their lookups and responses, see protocol/element_sizes.py."""


def finished(steps: Steps[T]) -> T:
    """Runs all steps at once and returns their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def memory_of_request(size: int) -> int:
    """Returns how much memory, in bytes, a request of `size` bytes may use besides its frame and its encoded response.

    A request that is charged for more is refused.
    """
    return LEAST_MEMORY_OF_REQUEST + MEMORY_PER_BYTE * size


class Pace:
    """Counts items through nested loops: `if pace.step_ends(): yield`. An expensive item counts as several."""

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
    """A lazy `[make(item) for item in items]`: each element is made whenever it is iterated over."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Sequence[Any], make: Callable[[Any], R]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._items)


def each_when_written(items: Sequence[Any], make: Callable[[Any], R]) -> Any:
    """Returns an array for a response: a list, or lazy if very long, so that no memory is used before it is encoded."""
    return EachMade(items, make) if len(items) > ITEMS_PER_STEP else [make(item) for item in items]


def each_in_steps(items: Iterable[T], make: Callable[[T], R], pace: Pace | None = None) -> Steps[list[R]]:
    """`[make(item) for item in items]` in steps. `pace` is shared with the surrounding loops."""
    pace = pace or Pace()
    made = []
    for item in items:
        made.append(make(item))
        if pace.step_ends(items_of(item) if isinstance(item, str) else 1):
            yield
    return made


def items_of(name: str) -> int:
    """Returns how many items a name counts as: it may be hashed, decoded and written character by character."""
    return 1 + len(name) // CHARACTERS_PER_ITEM


def once(items: Sequence[H]) -> Steps[list[H]]:
    """Returns each distinct item once, in order of first occurrence. Steps are long, as most items may be the same."""
    found: dict[H, None] = {}
    for start in range(0, len(items), ITEMS_PER_LOOK):
        if start:
            yield
        found.update(dict.fromkeys(items[start : start + ITEMS_PER_LOOK]))
    return list(found)


async def in_steps(steps: Steps[T]) -> T:
    """Runs steps within a coroutine and returns their value; other tasks run between any two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await asyncio.sleep(0)


def others_between(items: Iterable[T], cost: int = 1) -> AsyncIterator[T]:
    """Yields the items of a loop in a coroutine that may otherwise never wait; other tasks run between steps.

    `cost`: how many items of a step each of them counts as.
    """
    return _OthersBetween(items, cost)


class _OthersBetween(Generic[T]):
    """Most loops have few items or none. An asynchronous generator takes longer than they: the event loop keeps a list
    of those.
    """

    __slots__ = ("_cost", "_items", "_pace", "_step_ends")

    def __init__(self, items: Iterable[T], cost: int) -> None:
        self._items = iter(items)
        self._cost = cost
        self._pace = Pace()
        self._step_ends = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._step_ends:
            await asyncio.sleep(0)
        for item in self._items:
            self._step_ends = self._pace.step_ends(self._cost)
            return item
        raise StopAsyncIteration


def let_go(message: Any) -> Steps[None]:
    """Empties the long arrays of a message that is no longer needed: freeing a million objects takes its time, too.

    Arrays of numbers stay: they are freed quickly, and other objects may share them.
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


def is_short(message: Any) -> bool:
    """Whether a message (None: there is none) is encoded at once: its arrays together fit into one step."""
    return message is None or _left(message, ITEMS_PER_STEP) >= 0


def _left(message: Any, items: int) -> int:
    """Returns `items` less the items of the message; stops below 0, when the message is too long."""
    for field in message.__schema__.fields:
        held = getattr(message, field.attribute) if field.type == "array" else None
        if held is None:
            continue
        items -= len(held)
        for each in held if items >= 0 and has_arrays(field.struct_class) else ():
            items = _left(each, items)
            if items < 0:
                break
        if items < 0:
            break
    return items


def emptied(held: list[Any], has_arrays: bool = False) -> Steps[None]:
    """Removes all elements of a list; `has_arrays`: the elements are messages that may be long themselves."""
    while held:
        if has_arrays:
            for each in held[-ITEMS_PER_STEP:]:
                yield from let_go(each)
        del held[-ITEMS_PER_STEP:]
        yield
