"""Broker settings of replication, leadership and the related purgatories."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, ProtocolBetweenBrokers
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, MEDIUM, STRING, Setting

# fmt: off
REPLICATION_SETTINGS = (
    Setting("controller.socket.timeout.ms", INT, 30000, MEDIUM, takes_effect=True,
            doc="How long the controller waits for a broker's response."),
    Setting("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM, takes_effect=True,
            doc="The number of completed DeleteRecords requests in their purgatory that triggers a purge."),
    Setting("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM, takes_effect=True,
            doc="The number of completed fetches in their purgatory that triggers a purge."),
    Setting("inter.broker.protocol.version", STRING, "3.0-IV1", MEDIUM, valid=ProtocolBetweenBrokers(),
            takes_effect=True,
            doc="The release whose protocol is used between nodes; only 3.0 is supported."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="How often the controller checks for leaders that are not the preferred replica."),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, HIGH, takes_effect=True,
            doc="The percentage of leaders on other than preferred replicas, per node, above which leadership is "
                "returned to preferred replicas."),
    Setting("num.replica.alter.log.dirs.threads", INT, None, HIGH, takes_effect=True,
            doc="The number of replicas moved between log directories concurrently; by default one per directory."),
    Setting("num.replica.fetchers", INT, 1, HIGH, update_mode=CLUSTER_WIDE, takes_effect=True,
            doc="The number of connections per source node over which followers fetch."),
    Setting("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM, takes_effect=True,
            doc="The number of completed acks=all produce requests in their purgatory that triggers a purge."),
    Setting("replica.fetch.backoff.ms", INT, 1000, MEDIUM, valid=AtLeast(0), takes_effect=True,
            doc="The delay of a follower after a failed fetch."),
    Setting("replica.fetch.max.bytes", INT, 1048576, MEDIUM, valid=AtLeast(0), takes_effect=True,
            doc="The number of bytes per partition that a follower requests."),
    Setting("replica.fetch.min.bytes", INT, 1, HIGH, takes_effect=True,
            doc="The minimum number of bytes that a follower's fetch waits for."),
    Setting("replica.fetch.response.max.bytes", INT, 10485760, MEDIUM, valid=AtLeast(0), takes_effect=True,
            doc="The maximum size of the records that a follower requests in one fetch."),
    Setting("replica.fetch.wait.max.ms", INT, 500, HIGH, takes_effect=True,
            doc="How long a follower's fetch may wait."),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH, takes_effect=True,
            doc="How often high watermarks are checkpointed."),
    Setting("replica.lag.time.max.ms", LONG, 30000, HIGH, takes_effect=True,
            doc="How long a follower may lag before it is removed from the in-sync replicas."),
    Setting("replica.selector.class", STRING, None, MEDIUM,
            doc="The class that selects the replica from which a consumer should read."),
    Setting("replica.socket.receive.buffer.bytes", INT, 65536, HIGH,
            doc="The receive buffer of the sockets over which followers fetch."),
    Setting("replica.socket.timeout.ms", INT, 30000, HIGH, takes_effect=True,
            doc="How long a follower waits for the response to a fetch."),
    Setting("unclean.leader.election.enable", BOOLEAN, False, HIGH, update_mode=CLUSTER_WIDE, takes_effect=True,
            doc="The default of the topic setting unclean.leader.election.enable."),
    Setting("unclean.leader.election.interval.ms", LONG, 300000, MEDIUM, valid=AtLeast(1), internal=True,
            doc="How often the controller checks for partitions that need an unclean election."),
)
# fmt: on
