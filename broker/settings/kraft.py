"""Broker settings of KRaft quorums, which server.properties of KRaft nodes have. Odradek has no such quorum."""

from __future__ import annotations

from odradek.broker.settings.rules import Addresses, AtLeast
from odradek.broker.settings.setting import HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

# fmt: off
KRAFT_SETTINGS = (
    Setting("broker.heartbeat.interval.ms", INT, 2000, MEDIUM,
            doc="How often a KRaft broker tells the controller that it lives."),
    Setting("broker.session.timeout.ms", INT, 9000, MEDIUM,
            doc="Silence after which a KRaft controller takes a broker for dead."),
    Setting("controller.listener.names", STRING, None, HIGH, takes_effect=True,
            doc="Listeners for KRaft controllers; Odradek leaves them closed, since it has no KRaft quorum."),
    Setting("controller.quorum.append.linger.ms", INT, 25, MEDIUM,
            doc="How long a KRaft leader gathers writes before it flushes them."),
    Setting("controller.quorum.bootstrap.servers", LIST, [], HIGH, valid=Addresses(),
            doc="Addresses at which the KRaft quorum can be found."),
    Setting("controller.quorum.election.backoff.max.ms", INT, 1000, HIGH,
            doc="Longest pause between two KRaft elections."),
    Setting("controller.quorum.election.timeout.ms", INT, 1000, HIGH,
            doc="How long a KRaft election may last without a winner."),
    Setting("controller.quorum.fetch.timeout.ms", INT, 2000, HIGH,
            doc="Silence of a KRaft leader after which its followers call an election."),
    Setting("controller.quorum.request.timeout.ms", INT, 2000, MEDIUM,
            doc="How long a KRaft node waits for another one's answer."),
    Setting("controller.quorum.retry.backoff.ms", INT, 20, LOW,
            doc="Pause before a KRaft request is tried again."),
    Setting("controller.quorum.voters", LIST, [], HIGH, valid=Addresses(),
            doc="The KRaft voters as id@host:port list."),
    Setting("metadata.log.dir", STRING, None, HIGH,
            doc="Where KRaft keeps its metadata log; unset, the first of log.dirs."),
    Setting("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, HIGH, valid=AtLeast(1),
            doc="Bytes in the KRaft metadata log before a new snapshot."),
    Setting("metadata.log.max.snapshot.interval.ms", LONG, 3600000, HIGH, valid=AtLeast(0),
            doc="Longest time between two KRaft snapshots."),
    Setting("metadata.log.segment.bytes", INT, 1073741824, HIGH, valid=AtLeast(12),
            doc="Segment size of the KRaft metadata log."),
    Setting("metadata.log.segment.min.bytes", INT, 8388608, HIGH, valid=AtLeast(12), internal=True,
            doc="Lower bound of the segment size of the KRaft metadata log."),
    Setting("metadata.log.segment.ms", LONG, 604800000, HIGH,
            doc="Age at which a segment of the KRaft metadata log is closed."),
    Setting("metadata.max.idle.interval.ms", INT, 500, LOW, valid=AtLeast(0),
            doc="How often an idle KRaft controller writes a no-op record."),
    Setting("metadata.max.retention.bytes", LONG, 104857600, HIGH,
            doc="Size of KRaft metadata beyond which old snapshots and segments go."),
    Setting("metadata.max.retention.ms", LONG, 604800000, HIGH,
            doc="Age of KRaft metadata beyond which old snapshots and segments go."),
)
# fmt: on
