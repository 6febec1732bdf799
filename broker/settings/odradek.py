"""Odradek's own broker settings, which Kafka does not have."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, Between, OneOf
from odradek.broker.settings.setting import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Setting, SettingValues

# fmt: off
RELEASES = (
    "0.11", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.1", "3.2", "3.3",
    "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4",
)
# fmt: on
"""The releases of Kafka whose APIs a broker can serve instead of its own."""


def is_before(release: str | None, first: str) -> bool:
    """Returns whether `release` came before `first`, which is one of RELEASES. None is the newest."""
    return release is not None and RELEASES.index(release) < RELEASES.index(first)


# fmt: off
class OdradekSettings(SettingValues):
    odradek_as_version = Setting(STRING, None, LOW, valid=OneOf(*RELEASES),
        doc="The release of Kafka whose APIs and versions clients find, for tests with another broker; by default "
            "all that are served.")
    odradek_client_metrics_enable = Setting(BOOLEAN, False, LOW,
        doc="Whether clients push their own metrics (KIP-714), which /metrics and the console then show; needs the "
            "extra `telemetry`.")
    odradek_client_metrics_max_series = Setting(INT, 20000, LOW, valid=AtLeast(1),
        doc="The number of series of all clients' own metrics that a broker keeps; further ones are dropped.")
    odradek_console_enable = Setting(BOOLEAN, True, LOW,
        doc="Whether the port of the metrics also serves the console: a page that shows topics, groups, connections "
            "and what waits.")
    odradek_initial_features = Setting(LIST, [], LOW,
        doc="Levels of features, as NAME=LEVEL, that the first controller of a new cluster finalizes instead of the "
            "highest: for clusters with brokers of other releases.")
    odradek_log_tail_bytes = Setting(LONG, 4 * 1024 * 1024, LOW, valid=AtLeast(0),
        doc="The memory of all logs for recently appended batches, in bytes, which saves reading them from files; 0 "
            "disables it.")
    odradek_login_timeout_ms = Setting(INT, 30000, MEDIUM, valid=AtLeast(1),
        doc="How long a client may take from connecting until it has logged in, with TLS and SASL; then its connection "
            "is closed.")
    odradek_max_decompressed_batch_bytes = Setting(LONG, 128 * 1024 * 1024, HIGH, valid=AtLeast(1),
        doc="The maximum decompressed size of a batch; a larger batch is refused as too large.")
    odradek_max_decompressed_request_bytes = Setting(LONG, 256 * 1024 * 1024, HIGH, valid=AtLeast(1),
        doc="The maximum decompressed size of all batches of a Produce request; further batches are refused as too "
            "large.")
    odradek_max_handshakes_per_ip = Setting(INT, 500, MEDIUM, valid=AtLeast(1),
        doc="The number of TLS handshakes from one address that may be under way; a further connection is closed.")
    odradek_max_in_flight_bytes_per_connection = Setting(LONG, 64 * 1024 * 1024, MEDIUM, valid=AtLeast(1),
        doc="The bytes of unanswered requests above which a connection is not read.")
    odradek_max_in_flight_requests_per_connection = Setting(INT, 512, MEDIUM, valid=AtLeast(1),
        doc="The number of unanswered requests above which a connection is not read.")
    odradek_max_queued_bytes_before_login = Setting(LONG, 16 * 1024 * 1024, MEDIUM, valid=AtLeast(1),
        doc="The bytes of incomplete requests of all clients that have not logged in above which reading pauses; "
            "others have queued.max.request.bytes.")
    odradek_max_request_bytes = Setting(INT, 16 * 1024 * 1024, MEDIUM, valid=AtLeast(1),
        doc="The maximum size of a request of any API except Produce; a larger one closes the connection.")
    odradek_max_response_bytes = Setting(LONG, 100 * 1024 * 1024, HIGH, valid=AtLeast(64 * 1024),
        doc="The maximum size of a response other than Fetch's (fetch.max.bytes); a request that exceeds it fails "
            "with POLICY_VIOLATION.")
    odradek_max_unread_bytes = Setting(LONG, 512 * 1024 * 1024, MEDIUM, valid=AtLeast(1),
        doc="The memory for unread responses of all connections, in bytes, above which connections that read nothing "
            "are closed.")
    odradek_max_unread_bytes_per_connection = Setting(LONG, 256 * 1024 * 1024, MEDIUM, valid=AtLeast(1),
        doc="The bytes of responses waiting for a client that does not read, above which its connection is closed.")
    odradek_metrics_allowed_hosts = Setting(LIST, [], LOW,
        doc="The names with a dot that are accepted in the Host header of requests for /metrics and the console; `*` "
            "accepts all.")
    odradek_metrics_host = Setting(STRING, "127.0.0.1", LOW,
        doc="The address that serves /metrics, /health and the console; empty means all interfaces.")
    odradek_metrics_port = Setting(INT, -1, LOW, valid=Between(-1, 65535),
        doc="The port that serves /metrics, /health and the console; 0 means any free port, -1 disables them.")
    odradek_other_inter_broker_listener_name = Setting(STRING, None, LOW,
        doc="A second listener that serves requests of other brokers, while these move one by one from one "
            "inter.broker.listener.name to another.")
    odradek_scram_credentials_file = Setting(STRING, None, MEDIUM,
        doc="The file with the first credentials for SCRAM, one MECHANISM=[name=NAME,password=PASSWORD] a line, of "
            "which a start adds those that users do not have.")
    odradek_security_auth_login_config = Setting(STRING, None, MEDIUM,
        doc="The JAAS file with the login to ZooKeeper (section Client) and those of listeners (KafkaServer); in place "
            "of Java's property java.security.auth.login.config.")
    odradek_timer_tick_ms = Setting(INT, 1, LOW, valid=AtLeast(1),
        doc="The tick of the timing wheel behind the purgatories.")
    odradek_timer_wheel_size = Setting(INT, 20, LOW, valid=AtLeast(2),
        doc="The number of buckets of each timing wheel behind the purgatories.")
