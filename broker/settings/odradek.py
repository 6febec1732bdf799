"""Odradek's own broker settings: Kafka has none of them."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between
from odradek.broker.settings.setting import HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting

# fmt: off
ODRADEK_SETTINGS = (
    Setting("odradek.log.tail.bytes", LONG, 4 * 1024 * 1024, LOW, valid=AtLeast(0), own=True, takes_effect=True,
            doc="Memory for what was appended last, in bytes of all logs, which saves reading its file; 0 keeps none."),
    Setting("odradek.max.decompressed.batch.bytes", LONG, 128 * 1024 * 1024, HIGH, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="The largest size that a compressed batch may inflate to; one beyond it is refused as too large."),
    Setting("odradek.max.decompressed.request.bytes", LONG, 256 * 1024 * 1024, HIGH, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="What all batches of one Produce request may inflate to; those that follow are refused as too large."),
    Setting("odradek.max.in.flight.bytes.per.connection", LONG, 64 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="Bytes of unanswered requests beyond which a connection is not read."),
    Setting("odradek.max.in.flight.requests.per.connection", INT, 512, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="Unanswered requests beyond which a connection is not read."),
    Setting("odradek.max.request.bytes", INT, 16 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True, takes_effect=True,
            doc="The largest request of any API but Produce; a larger one closes the connection."),
    Setting("odradek.max.response.bytes", LONG, 100 * 1024 * 1024, HIGH, valid=AtLeast(64 * 1024), own=True,
            takes_effect=True,
            doc="The largest answer but Fetch's (fetch.max.bytes); a request for more fails with POLICY_VIOLATION."),
    Setting("odradek.max.unread.bytes", LONG, 512 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="Memory of untaken answers, in bytes of all connections, beyond which those end that take nothing."),
    Setting("odradek.max.unread.bytes.per.connection", LONG, 256 * 1024 * 1024, MEDIUM, valid=AtLeast(1), own=True,
            takes_effect=True,
            doc="Answers waiting for a client that does not read, in bytes, beyond which its connection ends."),
    Setting("odradek.metrics.allowed.hosts", LIST, [], LOW, own=True, takes_effect=True,
            doc="Names with a dot that a request for /metrics may give as its Host; `*` stands for all."),
    Setting("odradek.metrics.host", STRING, "127.0.0.1", LOW, own=True, takes_effect=True,
            doc="The address that serves /metrics and /health; empty means all interfaces."),
    Setting("odradek.metrics.port", INT, -1, LOW, valid=Between(-1, 65535), own=True, takes_effect=True,
            doc="The port that serves /metrics and /health; 0 picks a free one, -1 serves neither."),
    Setting("odradek.timer.tick.ms", INT, 1, LOW, valid=AtLeast(1), own=True, takes_effect=True,
            doc="The tick of the timing wheel behind the purgatories."),
    Setting("odradek.timer.wheel.size", INT, 20, LOW, valid=AtLeast(2), own=True, takes_effect=True,
            doc="The buckets of each of its wheels."),
)
# fmt: on
