"""Broker settings of KRaft quorums, as in the server.properties of KRaft nodes. Odradek has no KRaft quorum."""

from __future__ import annotations

from odradek.broker.settings.rules import Addresses, AtLeast
from odradek.broker.settings.setting import HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

# fmt: off
KRAFT_SETTINGS = (
    Setting("broker.heartbeat.interval.ms", INT, 2000, MEDIUM,
            doc="How often a KRaft broker sends a heartbeat to the controller."),
    Setting("broker.session.timeout.ms", INT, 9000, MEDIUM,
            doc="How long a broker may be silent before a KRaft controller considers it dead."),
    Setting("controller.listener.names", STRING, None, HIGH, takes_effect=True,
            doc="The listeners of KRaft controllers; Odradek does not open them, since it has no KRaft quorum."),
    Setting("controller.quorum.append.linger.ms", INT, 25, MEDIUM,
            doc="How long a KRaft leader accumulates writes before it flushes them."),
    Setting("controller.quorum.bootstrap.servers", LIST, [], HIGH, valid=Addresses(),
            doc="The addresses for discovering the KRaft quorum."),
    Setting("controller.quorum.election.backoff.max.ms", INT, 1000, HIGH,
            doc="The maximum delay between two KRaft elections."),
    Setting("controller.quorum.election.timeout.ms", INT, 1000, HIGH,
            doc="How long a KRaft election may take without a winner."),
    Setting("controller.quorum.fetch.timeout.ms", INT, 2000, HIGH,
            doc="How long a KRaft leader may be silent before its followers start an election."),
    Setting("controller.quorum.request.timeout.ms", INT, 2000, MEDIUM,
            doc="How long a KRaft node waits for another node's response."),
    Setting("controller.quorum.retry.backoff.ms", INT, 20, LOW,
            doc="The delay before a KRaft request is retried."),
    Setting("controller.quorum.voters", LIST, [], HIGH, valid=Addresses(),
            doc="The KRaft voters as a list of id@host:port."),
    Setting("metadata.log.dir", STRING, None, HIGH,
            doc="The directory of KRaft's metadata log; if not set, the first of log.dirs."),
    Setting("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, HIGH, valid=AtLeast(1),
            doc="The number of bytes in the KRaft metadata log before a new snapshot."),
    Setting("metadata.log.max.snapshot.interval.ms", LONG, 3600000, HIGH, valid=AtLeast(0),
            doc="The maximum time between two KRaft snapshots."),
    Setting("metadata.log.segment.bytes", INT, 1073741824, HIGH, valid=AtLeast(12),
            doc="The segment size of the KRaft metadata log."),
    Setting("metadata.log.segment.min.bytes", INT, 8388608, HIGH, valid=AtLeast(12), internal=True,
            doc="The minimum segment size of the KRaft metadata log."),
    Setting("metadata.log.segment.ms", LONG, 604800000, HIGH,
            doc="The age at which a segment of the KRaft metadata log rolls."),
    Setting("metadata.max.idle.interval.ms", INT, 500, LOW, valid=AtLeast(0),
            doc="How often an idle KRaft controller writes a no-op record."),
    Setting("metadata.max.retention.bytes", LONG, 104857600, HIGH,
            doc="The size of KRaft metadata above which old snapshots and segments are deleted."),
    Setting("metadata.max.retention.ms", LONG, 604800000, HIGH,
            doc="The age of KRaft metadata above which old snapshots and segments are deleted."),
)
# fmt: on
