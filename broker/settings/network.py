"""Broker settings of listeners, connections and sockets."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast, OneOf, Values
from odradek.broker.settings.setting import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class NetworkSettings(SettingValues):
    advertised_listeners = Setting(LIST, None, HIGH, valid=Values(may_be_empty=False),
        doc="The addresses advertised to clients, by listener; if not set, the addresses of `listeners`.")
    connection_failed_authentication_delay_ms = Setting(INT, 100, LOW, valid=AtLeast(0),
        doc="The delay of the response to a failed authentication.")
    connections_max_idle_ms = Setting(LONG, 600000, MEDIUM,
        doc="How long a connection may be idle before it is closed.")
    connections_max_reauth_ms = Setting(LONG, 0, MEDIUM, protects=True,
        doc="The lifetime of a SASL session, after which the client must authenticate again.")
    inter_broker_listener_name = Setting(STRING, None, MEDIUM,
        doc="The listener for connections between nodes; it must be advertised.")
    listener_security_protocol_map = Setting(STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, update_mode=PER_BROKER,
        doc="The security protocol of each listener, as NAME:PROTOCOL pairs.")
    listeners_listed = Setting(LIST, ["PLAINTEXT://:9092"], HIGH, name="listeners", update_mode=PER_BROKER,
        valid=Values(may_be_empty=False),
        doc="The addresses to listen on, as NAME://host:port; an empty host means all interfaces.")
    max_connections = Setting(INT, INT_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The maximum number of open connections.")
    max_connections_per_ip = Setting(INT, INT_MAX, MEDIUM, valid=AtLeast(0), update_mode=CLUSTER_WIDE,
        doc="The maximum number of open connections per client address.")
    max_connections_per_ip_overrides = Setting(STRING, "", MEDIUM, update_mode=CLUSTER_WIDE,
        doc="Overrides of max.connections.per.ip, as address:count pairs.")
    queued_max_request_bytes = Setting(LONG, -1, MEDIUM,
        doc="The bytes of incomplete and waiting requests of all connections above which reading pauses; if not set, "
            "the larger of 256 MiB and twice socket.request.max.bytes.")
    security_inter_broker_protocol = Setting(STRING, "PLAINTEXT", MEDIUM,
        valid=OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between nodes, unless inter.broker.listener.name selects a listener.")
    socket_connection_setup_timeout_ms = Setting(LONG, 10000, MEDIUM,
        doc="The timeout for opening a connection to another node.")
    socket_listen_backlog_size = Setting(INT, 50, MEDIUM, valid=AtLeast(1),
        doc="The maximum number of connections waiting to be accepted; if not set, 8192.")
    socket_receive_buffer_bytes = Setting(INT, 102400, HIGH,
        doc="The receive buffer of client sockets; -1 or no value means the system's default.")
    socket_request_max_bytes = Setting(INT, 104857600, HIGH, valid=AtLeast(1),
        doc="The maximum size of a request; a larger one closes the connection, and APIs other than Produce have the "
            "lower limit odradek.max.request.bytes.")
    socket_send_buffer_bytes = Setting(INT, 102400, HIGH,
        doc="The send buffer of client sockets; -1 or no value means the system's default.")
