"""The folder of a log's files: its path and partition, whether it needs a sync, whether its disk has failed; and the
topic that it belongs to, by the id in its `partition.metadata` (KIP-516).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from odradek.storage.file_names import DELETED_SUFFIX
from odradek.storage.files import Files
from odradek.storage.removal import Removals
from odradek.storage.throttled_lines import ThrottledLines
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class LogFolder:
    """`changed`: files were created or renamed in it, so a flush must sync it. `failure`: the content of the log on the
    disk is unknown, so the log accepts no appends until it is opened again. `is_abandoned`: the partition does not have
    this log any more, so nothing of it is flushed.
    """

    __slots__ = (
        "_errors",
        "changed",
        "clock",
        "failure",
        "files",
        "is_abandoned",
        "path",
        "removals",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, files: Files, path: str, topic_partition: TopicPartition, clock: Clock) -> None:
        self.files = files
        self.path = path
        self.topic_partition = topic_partition
        self.clock = clock
        self.topic_id: uuid.UUID | None = None
        self.changed = False
        self.failure: OSError | None = None
        self.is_abandoned = False
        self.removals: Removals = Removals(clock)
        self._errors: ThrottledLines = ThrottledLines(clock)

    def load_topic_id(self) -> None:
        """Reads the id. An unreadable file is logged as an error and treated as missing: the metadata store has the id
        too, and the next `assign_topic_id` writes it again.
        """
        try:
            self.topic_id = read_partition_metadata(self.files, f"{self.path}/{PARTITION_METADATA}")
        except CorruptCheckpoint as error:
            self.topic_id = None
            partition, instead = str(self.topic_partition), "the topic id of the metadata store"
            _log.error("topic id unreadable", partition=partition, reason=str(error), instead=instead)

    def assign_topic_id(self, topic_id: uuid.UUID, *, sync: bool = True) -> None:
        """Assigns the folder to this topic, and writes the id if none is known. Raises INCONSISTENT_TOPIC_ID if it
        belongs to another topic of the same name, and OSError.
        """
        if self.topic_id is None:
            write_partition_metadata(self.files, f"{self.path}/{PARTITION_METADATA}", topic_id, sync=sync)
        elif self.topic_id != topic_id:
            reason = f"{self.topic_partition} has the topic id {self.topic_id}, not {topic_id}"
            raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID, reason)
        self.topic_id = topic_id

    def mark_changed(self) -> None:
        self.changed = True

    def take_changed(self) -> bool:
        """Returns and resets `changed`. If it is True, the caller must sync the folder."""
        changed, self.changed = self.changed, False
        return changed

    def fail(self, error: OSError) -> None:
        self.failure = error

    def report(self, event: str, error: OSError, **details: Any) -> None:
        """Logs a failure, once a period."""
        partition, reason = str(self.topic_partition), str(error)
        self._errors.log(_log.error, (event, error.errno), event, partition=partition, reason=reason, **details)

    def delete_later(self, paths: Iterable[str], delay_ms: int) -> None:
        """Renames the files that exist (`.deleted`). They are removed later, so that their readers can finish. Raises
        OSError.
        """
        for path in paths:
            if self.files.exists(path):
                self.files.rename(path, path + DELETED_SUFFIX)
                self.removals.add(path + DELETED_SUFFIX, delay_ms)

    def relocate(self, path: str) -> None:
        """Updates the path after the unchanged files were moved to another folder. Files that waited for their removal
        were left behind.
        """
        self.path = path
        self.removals.clear()
        self.changed = True
