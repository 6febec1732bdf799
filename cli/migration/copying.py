"""Writes entries to ZooKeeper in pieces, one after the other, so that nothing is there without what comes before it.

(A) The head is written first and at once.
(B) Each later piece checks that the controller epoch is still as the head left it. A broker that starts on
    ZooKeeper meanwhile is elected, and changes it: then nothing more is written.
(C) A piece whose answer is lost is sent again and read back.
"""

from __future__ import annotations

from odradek.broker.controller.pieces import Piece, Unit, pieces_of
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Check, MetadataStore, MetadataStoreError, Operation
from odradek.broker.metadata_store.read_back import multi_or_read_back
from odradek.cli.migration.entries import MigrationError
from odradek.cli.migration.target import head_of

EPOCH_IS_UNCHANGED = Check(znodes.CONTROLLER_EPOCH, 0)


async def write(store: MetadataStore, place: str, units: list[Unit]) -> int:
    """Writes units and returns in how many pieces. Raises MigrationError."""
    head = head_of(units)
    pieces: list[Piece] = [[operation for unit in head for operation in unit]] if head else []
    pieces += [[EPOCH_IS_UNCHANGED, *piece] for piece in await pieces_of(units[len(head) :])]
    for number, piece in enumerate(pieces):
        await _write(store, place, piece, f"{number} of {len(pieces)} pieces were written")
    return len(pieces)


async def _write(store: MetadataStore, place: str, piece: list[Operation], so_far: str) -> None:
    try:
        await multi_or_read_back(store, piece)
    except MetadataStoreError as error:
        if error.path == znodes.CONTROLLER_EPOCH:
            raise MigrationError(f"a broker has started on ZooKeeper at {place} meanwhile; {so_far}") from error
        raise MigrationError(
            f"ZooKeeper at {place}: {error}; {so_far}: run the same command again, and it goes on"
        ) from error
