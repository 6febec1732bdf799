"""The clients' own metrics of one broker: who pushes them, and what has been pushed.

A push is decoded in steps, and one at a time: a few bytes may decompress to `most_bytes`, however many clients send
such.
"""

from __future__ import annotations

import asyncio
from random import Random

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.turns import Turns
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.requests.request_context import ConnectionInfo
from odradek.broker.telemetry.client_instances import ClientInstance, ClientInstances
from odradek.broker.telemetry.client_series import ClientSeries
from odradek.broker.telemetry.otlp import Pushed, Undecodable, decoded
from odradek.broker.telemetry.subscriptions import Subscriptions
from odradek.protocol.batch_header import Compression
from odradek.protocol.compression import decompressed_pieces
from odradek.protocol.compression_errors import CompressionFailed, TooLarge
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.timer import SystemTimer


class Counts:
    """What the broker has done since it started, as Kafka counts it."""

    __slots__ = ("exports", "failed_exports", "throttled", "unknown_subscriptions")

    def __init__(self) -> None:
        self.exports = 0
        self.failed_exports = 0
        self.throttled = 0
        self.unknown_subscriptions = 0


class ClientTelemetry:
    """`most_bytes`: telemetry.max.bytes. `most_series`: odradek.client.metrics.max.series."""

    def __init__(
        self,
        metadata: MetadataCache,
        timer: SystemTimer,
        random: Random,
        turns: Turns,
        *,
        most_bytes: int,
        most_series: int,
    ) -> None:
        self.most_bytes = most_bytes
        self.counts = Counts()
        self.series = ClientSeries(most_series)
        subscriptions = Subscriptions(
            lambda: (metadata.named_config_changes, metadata.named_configs(ConfigResourceType.CLIENT_METRICS))
        )
        self.instances = ClientInstances(subscriptions, timer, random, lambda each: self.series.forget(each.uuid))
        self._clock = timer.clock
        self._turns = turns
        self._one_at_a_time = asyncio.Lock()

    def disconnected(self, connection: ConnectionInfo) -> None:
        """Forgets the clients of a connection that has ended."""
        self.instances.disconnected(connection)

    async def export(self, instance: ClientInstance, codec: int, metrics: bytes) -> None:
        """Takes over what a client pushes, unless it has gone. Raises INVALID_RECORD."""
        async with self._one_at_a_time:
            if self.instances.get(instance.uuid) is not instance:
                return
            try:
                pushed = await self._turns.take(self._read(codec, metrics))
            except (CompressionFailed, TooLarge, Undecodable) as error:
                self.counts.failed_exports += 1
                raise ProtocolError(ErrorCode.INVALID_RECORD, f"The metrics cannot be decoded: {error}") from error
        self.counts.exports += 1
        self.series.dropped += pushed.left_out
        if self.instances.get(instance.uuid) is instance:
            instance.pushed_ms = self._clock.now_ms()
            instance.attributes = pushed.attributes
            self.series.put(instance.uuid, pushed.points)

    def _read(self, codec: int, metrics: bytes) -> Steps[Pushed]:
        if codec != Compression.NONE:
            pieces = []
            for piece in decompressed_pieces(codec, memoryview(metrics), self.most_bytes):
                pieces.append(piece)
                yield
            metrics = b"".join(pieces)
        return (yield from decoded(metrics))
