"""The content of an embedded store at one instant, as the files that it would leave if it closed then: the snapshot has
all entries, the journal deletes the session's ephemeral ones.
"""

from __future__ import annotations

from odradek.broker.background.stepwise import Pace, Steps, finished
from odradek.broker.metadata_store.interface import Delete
from odradek.broker.metadata_store.journal import (
    JOURNAL_NAME,
    SNAPSHOT_NAME,
    encode_journal_header,
    encode_transaction,
    snapshot_lines,
)
from odradek.broker.metadata_store.tree import MetadataTree


class FrozenStore:
    """Made at the instant, on the loop. Later changes of the tree do not show."""

    def __init__(self, tree: MetadataTree, session_id: int) -> None:
        self._number = tree.number
        self._entries = list(tree.items())
        self._ending = finished(tree.stage([Delete(path) for path in tree.ephemeral_paths()], session_id))

    def steps(self) -> Steps[dict[str, bytes]]:
        """Returns the contents of the files by name."""
        lines, pace = [], Pace()
        for line in snapshot_lines(self._number, self._entries):
            lines.append(line)
            if pace.step_ends():
                yield
        journal = encode_journal_header()
        if self._ending.entries:
            journal += encode_transaction(self._ending.number, self._ending.entries)
        return {SNAPSHOT_NAME: b"".join(lines), JOURNAL_NAME: journal}
