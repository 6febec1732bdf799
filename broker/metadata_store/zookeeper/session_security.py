"""How a session with ZooKeeper is secured, by the settings: TLS, its login, and the access to its entries.

Source: Kafka's `KafkaServer` and `JaasUtils`; ZooKeeper's `ZooKeeperSaslClient` and `SecurityUtils`.
"""

from __future__ import annotations

import random
import ssl
from typing import Any, NamedTuple

from odradek.broker.metadata_store.zookeeper.acls import AclsOf, kafkas_acls, open_to_all
from odradek.broker.security.cipher_suites import negotiable
from odradek.broker.security.digest_md5 import Credentials, DigestMd5Client
from odradek.broker.security.jaas import JaasError, LoginModule, parse_jaas
from odradek.broker.security.key_stores import Store, load_key, load_trusted
from odradek.broker.security.tls import client_context
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.settings.naming_files import naming_file
from odradek.broker.settings.zookeeper_checks import zookeeper_tls_versions
from odradek.storage.files import Files

JAAS_FILE = "odradek.security.auth.login.config"
SECTION = "Client"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SERVICE, HOST = "zookeeper", "zk-sasl-md5"
"""What ZooKeeper's servers are called in DIGEST-MD5, all of them."""


class SessionSecurity(NamedTuple):
    """`credentials` are those of the login on each connection, None for no login. `acls_of` returns the ACLs of a new
    entry. `tls` is that of each connection, None for a plain one.
    """

    credentials: Credentials | None = None
    acls_of: AclsOf = open_to_all
    tls: ssl.SSLContext | None = None

    def tls_options(self, host: str) -> dict[str, Any]:
        """The arguments of `create_connection` for a connection to a host."""
        return {} if self.tls is None else {"ssl": self.tls, "server_hostname": host}

    def new_login(self, source: random.Random) -> DigestMd5Client | None:
        """The login of one connection."""
        return None if self.credentials is None else DigestMd5Client(self.credentials, SERVICE, HOST, source)


INSECURE = SessionSecurity()


def session_security_of(config: BrokerConfig, files: Files) -> SessionSecurity:
    """Reads the files that the settings name. Raises ConfigError."""
    return SessionSecurity(
        credentials=_credentials(config, files),
        acls_of=kafkas_acls if config.zookeeper_set_acl else open_to_all,
        tls=_tls(config, files) if config.zookeeper_ssl_client_enable else None,
    )


def _credentials(config: BrokerConfig, files: Files) -> Credentials | None:
    """None without a JAAS file, or if it has only the logins of listeners, as in Kafka."""
    path = config.odradek_security_auth_login_config
    if not path:
        return None
    with naming_file(JAAS_FILE, path):
        content = files.read_file(path)
    try:
        sections = parse_jaas(content.decode(), path)
        if SECTION not in sections and not config.zookeeper_set_acl and any(each.has_sasl for each in config.listeners):
            return None
        return zookeeper_credentials(sections, path)
    except UnicodeDecodeError as error:
        raise ConfigError(JAAS_FILE, f"{JAAS_FILE}={path}: the file is not UTF-8") from error
    except JaasError as error:
        raise ConfigError(JAAS_FILE, f"{JAAS_FILE}: {error}") from error


def zookeeper_credentials(sections: dict[str, list[LoginModule]], source: str) -> Credentials:
    """Returns those of the section `Client`. Raises JaasError, which names the source."""
    modules = sections.get(SECTION)
    if modules is None:
        raise JaasError(f"{source}: there is no section {SECTION}")
    if len(modules) != 1:
        raise JaasError(f"{source}: section {SECTION} has {len(modules)} login modules, not one")
    (module,) = modules
    if module.class_name != DIGEST_MODULE:
        raise JaasError(
            f"{source}: section {SECTION} has the login module {module.class_name}; Odradek has only {DIGEST_MODULE}"
        )
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise JaasError(f"{source}: section {SECTION} lacks the option {' and '.join(missing)}")
    return Credentials(module.options["username"], module.options["password"])


def _tls(config: BrokerConfig, files: Files) -> ssl.SSLContext:
    context = client_context(
        negotiable(zookeeper_tls_versions(config), config.zookeeper_ssl_cipher_suites or None),
        checks_host_name=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    )
    trusted, key = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    if trusted:
        type_, password = config.zookeeper_ssl_truststore_type, config.zookeeper_ssl_truststore_password
        with naming_file(BrokerConfig.zookeeper_ssl_truststore_location.name, trusted):
            load_trusted(context, Store(trusted, files.read_file(trusted), type_, password))
    else:
        context.load_default_certs()
    if key:
        type_, password = config.zookeeper_ssl_keystore_type, config.zookeeper_ssl_keystore_password
        with naming_file(BrokerConfig.zookeeper_ssl_keystore_location.name, key):
            load_key(context, Store(key, files.read_file(key), type_, password))
    return context
