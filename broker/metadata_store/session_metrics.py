"""What a session with a shared store counts, under the names of Kafka's `ZooKeeperClient`.

The session calls it; `metrics/families.py` reads it. Kafka: SessionExpireListener, ZooKeeperClientMetrics.
"""

from __future__ import annotations

from odradek.broker.requests.request_metrics import TIME_BUCKETS, time_bucket

STATES = ("CONNECTING", "CONNECTED", "AUTH_FAILED", "CLOSED")
"""Those of ZooKeeper's client that can occur here."""


class SessionMetrics:
    """`state` is one of STATES. `times` are counts of answered requests by `time_bucket`."""

    def __init__(self) -> None:
        self.state = "CLOSED"
        self.connects = 0
        """Connections that continued or began a session."""
        self.disconnects = 0
        self.expirations = 0
        self.logins = 0
        self.failed_logins = 0
        self.times = [0] * TIME_BUCKETS
        self.total_time_ms = 0.0

    def answered(self, seconds: float) -> None:
        """A request was answered after so long."""
        elapsed_ms = seconds * 1000
        self.total_time_ms += elapsed_ms
        self.times[time_bucket(int(elapsed_ms))] += 1

    def opened(self) -> None:
        """The session looks for a connection."""
        self.state = "CONNECTING"

    def connected(self, *, logged_in: bool) -> None:
        """The session has a connection, on which it is `logged_in`."""
        self.state = "CONNECTED"
        self.connects += 1
        self.logins += logged_in

    def disconnected(self) -> None:
        """The connection is lost."""
        self.state = "CONNECTING"
        self.disconnects += 1

    def login_failed(self) -> None:
        """A server did not accept the login; others are tried, and it again."""
        self.state = "AUTH_FAILED"
        self.failed_logins += 1

    def expired(self) -> None:
        """The server has ended the session. A new one begins."""
        self.state = "CONNECTING"
        self.expirations += 1

    def closed(self) -> None:
        """This side has ended the session."""
        self.state = "CLOSED"
