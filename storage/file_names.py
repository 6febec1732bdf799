"""The names of files and folders in a log directory (Kafka's LogFileUtils, LocalLog)."""

import re
import uuid

from odradek.protocol.topic_partition import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETE_FOLDER_SUFFIX = "-delete"
FUTURE_FOLDER_SUFFIX = "-future"
STRAY_FOLDER_SUFFIX = "-stray"
_LONGEST_NAME = 255
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of_file(name: str) -> int | None:
    """Returns the offset before the first dot, or None if the name does not start with an offset."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def parse_folder(name: str) -> TopicPartition | None:
    """Returns the partition of a folder; None for any other name, including folders that wait for deletion."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isascii() or not number.isdigit() or (number != "0" and number[0] == "0"):
        return None
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", "..") or int(number) > 2**31 - 1:
        return None
    return TopicPartition(topic, int(number))


def deleted_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`topic-partition.<unique>-delete`, with the topic shortened if the name would be too long."""
    return _shortened(partition, unique, DELETE_FOLDER_SUFFIX)


def stray_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`topic-partition.<unique>-stray`, shortened in the same way."""
    return _shortened(partition, unique, STRAY_FOLDER_SUFFIX)


def _shortened(partition: TopicPartition, unique: uuid.UUID, suffix: str) -> str:
    tail = f"-{partition.partition}.{unique.hex}{suffix}"
    return partition.topic[: _LONGEST_NAME - len(tail)] + tail


def future_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`topic-partition.<unique>-future`: the name of a log's folder in the directory that it is moved to."""
    return f"{partition}.{unique.hex}{FUTURE_FOLDER_SUFFIX}"


def has_room_for_a_future(partition: TopicPartition) -> bool:
    """Whether the name of a future folder is not too long; unlike that of a deleted folder, it is never shortened."""
    return len(future_folder(partition, uuid.UUID(int=0))) <= _LONGEST_NAME


def parse_future_folder(name: str) -> TopicPartition | None:
    """Returns the partition of a future folder; None for any other name."""
    if not name.endswith(FUTURE_FOLDER_SUFFIX):
        return None
    head, _, unique = name.removesuffix(FUTURE_FOLDER_SUFFIX).rpartition(".")
    return parse_folder(head) if re.fullmatch(r"[0-9a-f]{32}", unique) else None


def is_deleted_folder(name: str) -> bool:
    return re.fullmatch(r"\S+-\d+\.[0-9a-f]{32}-delete", name) is not None
