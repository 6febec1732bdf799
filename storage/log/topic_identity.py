"""The topic that a partition's folder belongs to: the id in its `partition.metadata` (KIP-516)."""

import uuid

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from odradek.storage.files import Files

_log = structlog.get_logger(__name__)


def load_topic_id(files: Files, directory: str, topic_partition: TopicPartition) -> uuid.UUID | None:
    """Returns the id, or None if there is none. An unreadable file is logged as an error and treated as missing: the
    metadata store has the id too, and the next `claim_folder` writes it again.
    """
    try:
        return read_partition_metadata(files, f"{directory}/{PARTITION_METADATA}")
    except CorruptCheckpoint as error:
        _log.error(
            "topic id unreadable",
            partition=str(topic_partition),
            reason=str(error),
            instead="the topic id of the metadata store",
        )
        return None


def claim_folder(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    known: uuid.UUID | None,
    topic_id: uuid.UUID,
    *,
    sync: bool,
) -> None:
    """Writes the id into a folder without a known id. Raises INCONSISTENT_TOPIC_ID if the folder belongs to another
    topic of the same name, and OSError.
    """
    if known is None:
        write_partition_metadata(files, f"{directory}/{PARTITION_METADATA}", topic_id, sync=sync)
    elif known != topic_id:
        raise ProtocolError(
            ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} has the topic id {known}, not {topic_id}"
        )
