"""Changes that may be longer than the metadata store takes at once, cut into pieces: one `multi` each.

A change is a head and units. A unit is a few operations that belong together, such as a partition's entry and its
state; it is never cut.

    (A) A change that fits into one piece is written at once. Otherwise the head is written first, by itself, and the
        pieces of the units follow together.
    (B) If the head fails, nothing of the change is written.
    (C) After a crash between two pieces, the store has the head and some of the units. The next controller completes
        what the head says: so the head is a topic's assignment, and the units are its partitions' states.
    (D) If a piece of the units fails, the change is taken back: what was created is deleted, then the head is undone.
        If that fails, too, the controller resigns, and the next one completes the change (C).

Source: Kafka's `AdminZkClient` writes a topic's settings and assignment, and its controller the states after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import structlog

from odradek.broker.background.stepwise import others_between
from odradek.broker.controller.fenced_store import ControllerMoved, FencedStore
from odradek.broker.metadata_store.interface import (
    LONGEST_CHANGE,
    Create,
    Delete,
    MetadataStoreError,
    Operation,
    size_of,
)

OPERATIONS_AT_A_TIME = 1000
"""The most operations of a piece, so that it is encoded within a turn of the event loop."""
PIECE_BYTES = LONGEST_CHANGE - 1000
"""The most bytes of a piece; the rest is for the check of the controller epoch."""
COST = 4
"""The cost of a unit, in items of a step."""

Unit = Sequence[Operation]
Piece = list[Operation]

log = structlog.get_logger("controller")


class LongChange(NamedTuple):
    """`units` create entries; `undo` takes the head back."""

    head: Unit
    units: Iterable[Unit]
    undo: Unit


async def pieces_of(units: Iterable[Unit]) -> list[Piece]:
    """Returns the operations of the units, in order, in as few pieces as possible."""
    pieces: list[Piece] = []
    size = 0
    async for unit in others_between(units, COST):
        more = bytes_of(unit)
        if not pieces or not _fits(len(pieces[-1]) + len(unit), size + more):
            pieces.append([])
            size = 0
        pieces[-1] += unit
        size += more
    return pieces


def bytes_of(operations: Iterable[Operation]) -> int:
    """How many bytes the store counts."""
    return sum(map(size_of, operations))


def fits(operations: Sequence[Operation]) -> bool:
    """Whether the operations are not too many for one piece."""
    return len(operations) <= OPERATIONS_AT_A_TIME and _fits(len(operations), bytes_of(operations))


def _fits(count: int, size: int) -> bool:
    return count <= OPERATIONS_AT_A_TIME and size <= PIECE_BYTES


async def write(store: FencedStore, changes: Sequence[LongChange]) -> list[MetadataStoreError | None]:
    """Writes changes (A). Returns, per change in order, None, or why nothing of it is stored. Raises ControllerMoved
    (D).
    """
    cuts = [await _cut(change) for change in changes]
    heads = await store.pipeline([pieces[0] for pieces in cuts])
    errors = [outcome if isinstance(outcome, MetadataStoreError) else None for outcome in heads]
    followers = [
        (number, piece) for number, pieces in enumerate(cuts) if errors[number] is None for piece in pieces[1:]
    ]
    written: list[list[Piece]] = [[] for _ in changes]
    outcomes = await store.pipeline([piece for _, piece in followers])
    for (number, piece), outcome in zip(followers, outcomes, strict=True):
        if not isinstance(outcome, MetadataStoreError):
            written[number].append(piece)
        elif errors[number] is None:
            errors[number] = outcome
    for number in {number: None for number, _ in followers if errors[number] is not None}:
        await _take_back(store, changes[number], written[number])
    return errors


async def _cut(change: LongChange) -> list[Piece]:
    """Returns the pieces of a change, the one with the head first."""
    pieces = await pieces_of(change.units)
    if len(pieces) <= 1:
        whole = [*change.head, *chain.from_iterable(pieces)]
        if fits(whole):
            return [whole]
    return [[*change.head], *pieces]


async def _take_back(store: FencedStore, change: LongChange, written: Sequence[Piece]) -> None:
    """Undoes what is written of a change (D)."""
    created = [each.path for piece in written for each in piece if isinstance(each, Create)]
    for pieces in (await pieces_of([Delete(path)] for path in reversed(created)), [change.undo]):
        for outcome in await store.pipeline(pieces):
            if isinstance(outcome, MetadataStoreError):
                log.error("change written in part", entry=change.undo[0].path, reason=str(outcome))
                raise ControllerMoved(f"a change of {change.undo[0].path} is written in part: {outcome}")
