"""Which topic a partition's folder belongs to: the id in its `partition.metadata` (KIP-516)."""

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
    """The id; None where there is none. What cannot be read is said loudly and taken for none: the id stands in the
    metadata store too, and is written anew with the next `claim_folder`.
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
    """Writes the id into a folder of which none is known. Raises INCONSISTENT_TOPIC_ID when it belongs to another topic
    of that name, and OSError.
    """
    if known is None:
        write_partition_metadata(files, f"{directory}/{PARTITION_METADATA}", topic_id, sync=sync)
    elif known != topic_id:
        raise ProtocolError(
            ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} has the topic id {known}, not {topic_id}"
        )
