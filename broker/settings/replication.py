"""Broker settings of replication, leadership and of the purgatories that belong to it."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Release
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, MEDIUM, STRING, Setting

# fmt: off
REPLICATION_SETTINGS = (
    Setting("controller.socket.timeout.ms", INT, 30000, MEDIUM,
            doc="How long the controller waits for a broker's answer."),
    Setting("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM, takes_effect=True,
            doc="Completed DeleteRecords that may linger in their purgatory before a purge."),
    Setting("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM, takes_effect=True,
            doc="Completed fetches that may linger in their purgatory before a purge."),
    Setting("inter.broker.protocol.version", STRING, "3.9-IV0", MEDIUM, valid=Release(),
            doc="The release whose protocol nodes speak among themselves."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, HIGH, valid=AtLeast(1),
            doc="How often the controller looks for leaders away from their preferred node."),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, HIGH,
            doc="Share of such leaders per node beyond which they are moved back."),
    Setting("num.replica.alter.log.dirs.threads", INT, None, HIGH, takes_effect=True,
            doc="Replicas that move between log directories at a time; by default one for each directory."),
    Setting("num.replica.fetchers", INT, 1, HIGH, update_mode=CLUSTER_WIDE,
            doc="Connections per source node over which followers fetch."),
    Setting("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM, takes_effect=True,
            doc="Completed acks=all produces that may linger in their purgatory before a purge."),
    Setting("replica.fetch.backoff.ms", INT, 1000, MEDIUM, valid=AtLeast(0),
            doc="Pause of a follower after a failed fetch."),
    Setting("replica.fetch.max.bytes", INT, 1048576, MEDIUM, valid=AtLeast(0),
            doc="Bytes per partition that a follower asks for."),
    Setting("replica.fetch.min.bytes", INT, 1, HIGH,
            doc="Bytes that a follower's fetch waits for."),
    Setting("replica.fetch.response.max.bytes", INT, 10485760, MEDIUM, valid=AtLeast(0),
            doc="Bytes that a follower asks for in one fetch."),
    Setting("replica.fetch.wait.max.ms", INT, 500, HIGH,
            doc="How long a follower's fetch may wait."),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH, takes_effect=True,
            doc="How often high watermarks are written down."),
    Setting("replica.lag.time.max.ms", LONG, 30000, HIGH,
            doc="A follower that has not caught up for this long leaves the in-sync replicas."),
    Setting("replica.selector.class", STRING, None, MEDIUM,
            doc="Class that chooses the replica a consumer should read from."),
    Setting("replica.socket.receive.buffer.bytes", INT, 65536, HIGH,
            doc="Receive buffer of the sockets over which followers fetch."),
    Setting("replica.socket.timeout.ms", INT, 30000, HIGH,
            doc="How long a follower waits for the answer to a fetch."),
    Setting("unclean.leader.election.enable", BOOLEAN, False, HIGH, update_mode=CLUSTER_WIDE,
            doc="The default of topics for unclean.leader.election.enable."),
    Setting("unclean.leader.election.interval.ms", LONG, 300000, MEDIUM, valid=AtLeast(1), internal=True,
            doc="How often the controller looks for partitions that need an unclean election."),
)
# fmt: on
