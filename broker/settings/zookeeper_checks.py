"""Checks of the settings of the connection to ZooKeeper against each other.

Kafka ignores a setting of the login, of TLS or of ACLs that has no use, for example a truststore without TLS. Here it
is an error: it promises protection, and would do nothing. Source: Kafka's `KafkaServer` and `ZkConfigs`; ZooKeeper's
`ZKClientConfig` and `X509Util`. A broker without ZooKeeper imports nothing for them.
"""

from __future__ import annotations

from odradek.broker.settings import BrokerSettings, ConfigError

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
LOGIN = BrokerSettings.odradek_security_auth_login_config
TLS = BrokerSettings.zookeeper_ssl_client_enable
SOCKET = BrokerSettings.zookeeper_clientCnxnSocket
ALGORITHM = BrokerSettings.zookeeper_ssl_endpoint_identification_algorithm
PROTOCOL = BrokerSettings.zookeeper_ssl_protocol
PROTOCOLS = BrokerSettings.zookeeper_ssl_enabled_protocols
SUITES = BrokerSettings.zookeeper_ssl_cipher_suites
KEY = BrokerSettings.zookeeper_ssl_keystore_location
OF_TLS = (
    KEY,
    BrokerSettings.zookeeper_ssl_keystore_password,
    BrokerSettings.zookeeper_ssl_truststore_location,
    BrokerSettings.zookeeper_ssl_truststore_password,
    PROTOCOL,
    PROTOCOLS,
    SUITES,
)
"""Promise something about TLS, if they have another value than the default."""
STORE_TYPES = (BrokerSettings.zookeeper_ssl_keystore_type, BrokerSettings.zookeeper_ssl_truststore_type)
KNOWN_TYPES = ("JKS", "PKCS12", "PEM")


def check_zookeeper(values: BrokerSettings) -> None:
    """Raises ConfigError."""
    servers = values.zookeeper_connect
    if servers is None:
        _check_unused(values)
        return
    from odradek.broker.settings.connect_string import parse_connect_string

    _require(
        not values.process_roles,
        "zookeeper.connect",
        "zookeeper.connect and process.roles cannot both be set: the metadata of a cluster are in one place",
    )
    try:
        parse_connect_string(servers)
    except ValueError as error:
        raise ConfigError("zookeeper.connect", f"zookeeper.connect={servers}: {error}") from error
    if values.zookeeper_ssl_client_enable:
        _check_tls(values)
    else:
        for setting in OF_TLS:
            _require(
                setting.of(values) in (None, "", [], setting.default),
                setting.name,
                f"{setting.name} has no use without {TLS.name}=true: connections to ZooKeeper are not encrypted",
            )
    shows_who_it_is = bool(LOGIN.of(values)) or (values.zookeeper_ssl_client_enable and bool(KEY.of(values)))
    _require(
        not values.zookeeper_set_acl or shows_who_it_is,
        "zookeeper.set.acl",
        f"zookeeper.set.acl=true needs a login to ZooKeeper: set {LOGIN.name}, or {TLS.name} and {KEY.name}",
    )


def _check_unused(values: BrokerSettings) -> None:
    for setting in (BrokerSettings.zookeeper_set_acl, TLS, *OF_TLS):
        _require(
            setting.of(values) in (None, "", [], setting.default),
            setting.name,
            f"{setting.name} has no use without zookeeper.connect",
        )


def _check_tls(values: BrokerSettings) -> None:
    _require(
        SOCKET.of(values) == NETTY,
        SOCKET.name,
        f"{TLS.name}=true needs {SOCKET.name}={NETTY}",
    )
    algorithm = ALGORITHM.of(values)
    _require(
        algorithm.upper() in ("HTTPS", ""),
        ALGORITHM.name,
        f"{ALGORITHM.name}={algorithm} is neither HTTPS nor empty",
    )
    for setting in STORE_TYPES:
        kind = setting.of(values)
        _require(
            not kind or kind.upper() in KNOWN_TYPES,
            setting.name,
            f"{setting.name}={kind} is not one of {', '.join(KNOWN_TYPES)}",
        )
    versions, suites = zookeeper_tls_versions(values), SUITES.of(values)
    _check_negotiable(PROTOCOLS.name if PROTOCOLS.of(values) else PROTOCOL.name, versions, None)
    _check_negotiable(SUITES.name, versions, suites or None)


def zookeeper_tls_versions(values: BrokerSettings) -> list[str]:
    """The TLS versions that the settings allow."""
    return PROTOCOLS.of(values) or [PROTOCOL.of(values)]


def _check_negotiable(name: str, versions: list[str], suites: list[str] | None) -> None:
    from odradek.broker.security.cipher_suites import negotiable

    try:
        negotiable(versions, suites)
    except ValueError as error:
        raise ConfigError(name, f"{name} {error}") from error


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise ConfigError(name, message)
