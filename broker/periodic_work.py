"""What a broker does from time to time, at the intervals that its settings say.

| work | setting |
|---|---|
| look at connections: hung up, too slow to close, idle | every half second |
| flush rolled segments, remove files whose delay is over | every second |
| apply retention | log.retention.check.interval.ms |
| write checkpoints: recovery points | log.flush.offset.checkpoint.interval.ms |
| ... log start offsets | log.flush.start.offset.checkpoint.interval.ms |
| ... high watermarks | replica.high.watermark.checkpoint.interval.ms |
| forget silent producers | producer.id.expiration.check.interval.ms |
| forget offsets of groups that are over | offsets.retention.check.interval.ms |

Walks over all logs give others their turn after each log; what waits for the disk runs in threads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.errors import ProtocolError
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT

if TYPE_CHECKING:
    from odradek.broker.server import Broker

SWEEP_INTERVAL_MS = 500
HOUSEKEEPING_INTERVAL_MS = 1000
MINUTE_MS = 60_000
GROUPS_PER_TURN = 100

CHECKPOINTS = {
    "log.flush.offset.checkpoint.interval.ms": RECOVERY_POINT,
    "log.flush.start.offset.checkpoint.interval.ms": LOG_START_OFFSET,
    "replica.high.watermark.checkpoint.interval.ms": HIGH_WATERMARK,
}

log = structlog.get_logger("broker.background")


class PeriodicWork:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._background = broker.background
        self._logs = broker.log_manager

    def start(self) -> None:
        every = self._background.every
        config = self._broker.config
        logs = self._logs
        every(SWEEP_INTERVAL_MS, self._broker.socket_server.sweep, "look at connections")
        every(HOUSEKEEPING_INTERVAL_MS, self.keep_house, "flush and remove segments")
        every(config["log.retention.check.interval.ms"], self.apply_retention, "retention")
        every(config["producer.id.expiration.check.interval.ms"], logs.expire_producers, "expiry of producers")
        every(config["offsets.retention.check.interval.ms"], self.expire_offsets, "expiry of offsets")
        for setting, name in CHECKPOINTS.items():
            every(max(config[setting], 1), partial(self.write_checkpoint, name), name)

    async def keep_house(self) -> None:
        """Flushes rolled segments and removes files and folders whose delay is over."""
        for partition_log, job in self._logs.take_flush_jobs():
            await self._background.run_in_thread(job.run)
            try:
                partition_log.finish_flush(job)
            except ProtocolError:
                pass  # The log has said so.
        removal = self._logs.take_removals()
        if removal is not None:
            await self._background.run_in_thread(removal.run)

    async def apply_retention(self) -> None:
        """Deletes segments that are too old or too many."""
        for _ in self._broker.replica_manager.retention_steps():
            await asyncio.sleep(0)

    async def expire_offsets(self) -> None:
        """Forgets committed offsets whose time is over, and groups that have neither members nor offsets."""
        retention_ms = self._broker.config["offsets.retention.minutes"] * MINUTE_MS
        for step, _ in enumerate(self._broker.group_coordinator.expire_offsets(retention_ms)):
            if step % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def write_checkpoint(self, name: str) -> None:
        """Writes one of the checkpoint files of every log directory, where it has changed."""
        try:
            await self._background.run_in_thread(self._logs.take_checkpoint(name))
        except OSError as error:
            log.error("a checkpoint could not be written", checkpoint=name, reason=str(error))
