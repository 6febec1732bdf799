"""The consumer group that shows the progress of a pipeline to all of Kafka's tools.

Spark commits no offsets. After each batch the ingest commits the batch's end offsets to this group, without being a
member (OffsetCommit with generation -1, as kafka-consumer-groups does to reset offsets). The group only mirrors the
ledger. A failed commit is logged and dropped; the next batch commits newer offsets anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from kafka.errors import KafkaError, NoError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.admin import admin_client
from odradek.pipeline.settings import Settings

log = structlog.get_logger("pipeline.shadow_group")

PAUSES_S = (0.2, 1.0)
"""Pauses between attempts, for a coordinator that is loading or moving. Longer ones would delay the ingest."""
PATIENCE_MS = 5_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit(
    settings: Settings,
    offsets: Mapping[str, Mapping[int, int]],
    *,
    pauses_s: Sequence[float] = PAUSES_S,
    patience_ms: int = PATIENCE_MS,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Commits the next offset to read of each partition to `settings.group`. Returns whether all were accepted.

    Does not raise for errors and timeouts of Kafka: retries after each of `pauses_s`, then logs the error."""
    wanted = {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
    problems: dict[str, list[str]] = {}
    for pause in (*pauses_s, None):
        if not wanted:
            return True
        refused, problems = _attempt(settings, wanted, patience_ms)
        wanted = {partition: wanted[partition] for partition in refused}
        if wanted and pause is not None:
            sleep(pause)
    if not wanted:
        return True
    log.error(
        "shadow group not updated",
        group=settings.group,
        problems=problems,
        attempts=len(pauses_s) + 1,
    )
    return False


def _attempt(
    settings: Settings, wanted: Offsets, patience_ms: int
) -> tuple[list[TopicPartition], dict[str, list[str]]]:
    """Commits once. Returns the refused partitions, as a list and by reason."""
    try:
        with admin_client(settings, patience_ms) as admin:
            results = admin.alter_group_offsets(settings.group, dict(wanted))
    except (KafkaError, PipelineError, OSError) as error:
        return list(wanted), {_reason(error): ["all partitions"]}
    refused = {partition: results.get(partition, KafkaError) for partition in wanted}
    refused = {partition: kind for partition, kind in refused.items() if kind is not NoError}
    problems: dict[str, list[str]] = {}
    for (topic, number), kind in refused.items():
        problems.setdefault(_reason(kind()), []).append(f"{topic}-{number}")
    return list(refused), problems


def _reason(error: Exception) -> str:
    if isinstance(error, UnknownMemberIdError):
        return "the group has members: stop those consumers, or set shadow-group"
    return f"{type(error).__name__}: {error}".removesuffix(": ")
