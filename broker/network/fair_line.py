"""A line in which addresses take turns: an item waits for those from its own address that came before it, and for as
many from each other address.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairLine(Generic[T]):
    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        """By address, the one whose turn it is first. None of them is empty."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def addresses(self) -> int:
        """How many addresses something waits from."""
        return len(self._waiting)

    def waiting_from(self, address: str) -> int:
        of_address = self._waiting.get(address)
        return 0 if of_address is None else len(of_address)

    def add(self, address: str, item: T) -> None:
        """Puts an item behind those from its address."""
        self._waiting.setdefault(address, deque()).append(item)
        self._length += 1

    def take(self) -> T:
        """Removes and returns the next item. Raises StopIteration if there is none."""
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        item = of_address.popleft()
        if of_address:
            self._waiting[address] = of_address
        self._length -= 1
        return item
