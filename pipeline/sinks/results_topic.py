"""Writes good rows as JSON to a topic, exactly once for read_committed consumers.

Spark's own Kafka sink is at-least-once. Here one Kafka transaction contains the records of a batch and a token (the
number of the next batch, as the offset of a group named after the pipeline): a batch whose token is committed was sent.
The driver sends, so all good rows pass through it, in parts. The key is that of the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition
from pyspark.sql import DataFrame

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.admin import admin_client, committed_offsets
from odradek.pipeline.kafka.security import connection_options
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.state.batch_id import BatchId

TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms."""


class ResultsTopic:
    """The topic of the setting results-topic."""

    def __init__(self, settings: Settings, reached: Callable[[str], None] = nothing) -> None:
        self._settings = settings
        self._topic = settings.results_topic
        self._reached = reached

    def last_batch(self, batch: BatchId) -> int | None:
        """Returns the number of the last batch whose token is committed."""
        token = TopicPartition(self._topic, 0)
        group = batch.app("results")
        with admin_client(self._settings) as admin:
            found = committed_offsets(admin, group, [token]).get(token, 0)
        return found - 1 if found >= 1 else None

    def write(self, rows: DataFrame, batch: BatchId) -> int:
        """Sends `rows` (columns key, value) unless this batch was sent. Returns their number. Raises PipelineError."""
        producer = self._producer(batch)
        try:
            producer.init_transactions()  # Aborts a transaction that an earlier attempt left open.
            last = self.last_batch(batch)
            if last is not None and last >= batch.number:
                return 0
            producer.begin_transaction()
            count = self._send(producer, rows)
            token = {TopicPartition(self._topic, 0): OffsetAndMetadata(batch.number + 1, "", -1)}
            producer.send_offsets_to_transaction(token, batch.app("results"))
            self._reached("results: sent")
            producer.commit_transaction()
        except KafkaError as error:
            raise PipelineError(
                f"the results of batch {batch} could not be sent to {self._topic}: {type(error).__name__}: {error}",
                "none of them is visible; start again when the brokers are available",
            ) from error
        finally:
            producer.close(timeout=10)
        self._reached("results: committed")
        return count

    def _send(self, producer: Any, rows: DataFrame) -> int:
        failures: list[Exception] = []
        count = 0
        for row in rows.toLocalIterator(prefetchPartitions=True):
            key = None if row.key is None else bytes(row.key)
            producer.send(self._topic, value=row.value.encode(), key=key).add_errback(failures.append)
            count += 1
            if failures:
                break
        producer.flush()
        if failures:
            raise failures[0]
        return count

    def _producer(self, batch: BatchId) -> Any:
        servers = [server.strip() for server in self._settings.bootstrap_server.split(",")]
        return KafkaProducer(
            bootstrap_servers=servers,
            client_id=f"odradek-{self._settings.name}",
            transactional_id=batch.app("results"),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=20,
            **connection_options(self._settings.kafka),
        )
