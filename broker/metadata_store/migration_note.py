"""`metadata.migration`, beside the embedded store's two files: `odradek cluster migrate` copies them to ZooKeeper.

    note        the two files                        a node with zookeeper.connect      a node without it
    ----------  -----------------------------------  ---------------------------------  ------------------------
    none        there are none                       starts                             starts
    none        are the node's metadata              does not start: all would be gone  starts
    begun       are, and a part is in ZooKeeper      does not start: some would be gone does not start
    complete    are what they were at the migration  starts                             does not start: all later
                                                                                        changes would be gone

The two files stay as they are. Deleting the note takes a migration back, as long as the node has not run on ZooKeeper:
later, its logs have leader epochs and producer ids that the two files do not know.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from odradek.broker.metadata_store.interface import StoreDamaged
from odradek.broker.metadata_store.journal import JOURNAL_NAME, SNAPSHOT_NAME
from odradek.storage.files import Files

NAME = "metadata.migration"
FORMAT = "odradek-metadata-migration"
BEGUN, COMPLETE = "begun", "complete"


class MigrationNote(NamedTuple):
    """The value of zookeeper.connect; BEGUN or COMPLETE; and since when, in ISO 8601."""

    zookeeper_connect: str
    state: str
    time: str

    @property
    def is_complete(self) -> bool:
        """Whether everything is in ZooKeeper."""
        return self.state == COMPLETE


def read_note(files: Files, directory: str) -> MigrationNote | None:
    """Returns None if there is no note. Raises OSError, and StoreDamaged if nobody can read it."""
    path = os.path.join(directory, NAME)
    if not files.exists(path):
        return None
    try:
        value = json.loads(files.read_file(path))
        if (value["format"], value["version"]) != (FORMAT, 1) or value["state"] not in (BEGUN, COMPLETE):
            raise ValueError("the format is not known")
        return MigrationNote(str(value["zookeeper.connect"]), value["state"], str(value["time"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreDamaged("", f"{path} is not a note of `odradek cluster migrate`: {error!r}") from error


def write_note(files: Files, directory: str, note: MigrationNote) -> None:
    """Writes the note durably. Raises OSError."""
    value = {
        "format": FORMAT,
        "version": 1,
        "zookeeper.connect": note.zookeeper_connect,
        "state": note.state,
        "time": note.time,
    }
    files.replace_file(os.path.join(directory, NAME), json.dumps(value, indent=2).encode("ascii") + b"\n")


def why_not_without_zookeeper(note: MigrationNote, directory: str) -> str:
    """Why a node with this note does not start without ZooKeeper."""
    path = os.path.join(directory, NAME)
    if not note.is_complete:
        return f"{_unfinished(note, directory)}. To go on without ZooKeeper instead, delete {path}"
    return (
        f"the metadata in {directory} were copied to ZooKeeper at {note.zookeeper_connect} ({note.time}): start this "
        f"node with zookeeper.connect={note.zookeeper_connect}. As long as it has not run there, deleting {path} takes "
        "the migration back"
    )


def why_not_with_zookeeper(files: Files, directory: str) -> str | None:
    """Why a node with this log directory does not start with ZooKeeper; None if it does. Raises StoreDamaged."""
    note = read_note(files, directory)
    if note is not None:
        return None if note.is_complete else _unfinished(note, directory)
    if not any(files.exists(os.path.join(directory, name)) for name in (SNAPSHOT_NAME, JOURNAL_NAME)):
        return None
    return (
        f"{directory} has the metadata of a node without ZooKeeper, and with zookeeper.connect its topics would be "
        "missing: copy them with `odradek cluster migrate`, or, if they are not needed, move "
        f"{SNAPSHOT_NAME} and {JOURNAL_NAME} away"
    )


def _unfinished(note: MigrationNote, directory: str) -> str:
    return (
        f"the migration of {directory} to ZooKeeper at {note.zookeeper_connect} has begun ({note.time}) and is not "
        "complete: run `odradek cluster migrate` again"
    )
