"""Odradek's own broker settings, which Kafka does not have."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between
from odradek.broker.settings.setting import HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

# fmt: off
ODRADEK_SETTINGS = (
    Setting("odradek.log.tail.bytes", LONG, 4 * 1024 * 1024, LOW, valid=AtLeast(0), own=True, takes_effect=True,
            doc="The memory of all logs for recently appended batches, in bytes, which saves reading them from "
                "files; 0 disables it."),
    Setting("odradek.max.decompressed.batch.bytes", LONG, 128 * 1024 * 1024, HIGH, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The maximum decompressed size of a batch; a larger batch is refused as too large."),
    Setting("odradek.max.decompressed.request.bytes", LONG, 256 * 1024 * 1024, HIGH, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The maximum decompressed size of all batches of a Produce request; further batches are refused as "
                "too large."),
    Setting("odradek.max.in.flight.bytes.per.connection", LONG, 64 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The bytes of unanswered requests above which a connection is not read."),
    Setting("odradek.max.in.flight.requests.per.connection", INT, 512, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The number of unanswered requests above which a connection is not read."),
    Setting("odradek.max.request.bytes", INT, 16 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True, takes_effect=True,
            doc="The maximum size of a request of any API except Produce; a larger one closes the connection."),
    Setting("odradek.max.response.bytes", LONG, 100 * 1024 * 1024, HIGH, valid=AtLeast(64 * 1024), own=True,
            takes_effect=True,
            doc="The maximum size of a response other than Fetch's (fetch.max.bytes); a request that exceeds it "
                "fails with POLICY_VIOLATION."),
    Setting("odradek.max.unread.bytes", LONG, 512 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The memory for unread responses of all connections, in bytes, above which connections that read "
                "nothing are closed."),
    Setting("odradek.max.unread.bytes.per.connection", LONG, 256 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The bytes of responses waiting for a client that does not read, above which its connection is "
                "closed."),
    Setting("odradek.metrics.allowed.hosts", LIST, [], LOW, own=True, takes_effect=True,
            doc="The names with a dot that are accepted in the Host header of requests for /metrics; `*` accepts all."),
    Setting("odradek.metrics.host", STRING, "127.0.0.1", LOW, own=True, takes_effect=True,
            doc="The address that serves /metrics and /health; empty means all interfaces."),
    Setting("odradek.metrics.port", INT, -1, LOW, valid=Between(-1, 65535), own=True, takes_effect=True,
            doc="The port that serves /metrics and /health; 0 means any free port, -1 disables both."),
    Setting("odradek.timer.tick.ms", INT, 1, LOW, valid=AtLeast(1), own=True, takes_effect=True,
            doc="The tick of the timing wheel behind the purgatories."),
    Setting("odradek.timer.wheel.size", INT, 20, LOW, valid=AtLeast(2), own=True, takes_effect=True,
            doc="The number of buckets of each timing wheel behind the purgatories."),
)
# fmt: on
