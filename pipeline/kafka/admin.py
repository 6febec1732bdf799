"""kafka-python's admin client, configured by the settings: for requests about offsets, topics and groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.structs import TopicPartition

from odradek.pipeline.kafka.security import connection_options, refuse_wrong_login
from odradek.pipeline.settings import Settings

PAUSES_S = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0)


@contextmanager
def admin_client(settings: Settings, patience_ms: int = 10_000) -> Iterator[KafkaAdminClient]:
    """Yields a client that gives up after `patience_ms` without a response. Raises PipelineError and KafkaError."""
    refuse_wrong_login(settings, patience_ms)
    networks: list[KafkaNetClient] = []

    def network(**configs: Any) -> KafkaNetClient:
        networks.append(KafkaNetClient(**configs))
        return networks[-1]

    try:
        yield KafkaAdminClient(
            bootstrap_servers=[server.strip() for server in settings.bootstrap_server.split(",")],
            client_id=f"odradek-{settings.name}",
            bootstrap_timeout_ms=patience_ms,
            request_timeout_ms=patience_ms,
            reconnect_backoff_max_ms=1000,
            kafka_client=network,
            **connection_options(settings.kafka),
        )
    finally:
        # If no broker responds, no client exists that could be closed, but its thread and its sockets remain.
        for each in networks:
            each.close()


def committed_offsets(
    admin: KafkaAdminClient,
    group: str,
    partitions: Sequence[TopicPartition] | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[TopicPartition, int]:
    """Returns the group's offsets of the partitions, or of all partitions. Raises KafkaError.

    Retries after each pause: a coordinator may be loading, and the first such request creates __consumer_offsets."""
    wanted = None if partitions is None else list(partitions)
    for pause in (*pauses_s, None):
        try:
            found = admin.list_group_offsets({group: wanted})[group]
        except KafkaError as error:
            if pause is None or not error.retriable:
                raise
            sleep(pause)
        else:
            return {partition: each.offset for partition, each in found.items()}
    raise AssertionError("the last attempt returns or raises")
