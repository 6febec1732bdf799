"""The keys and certificates of a broker's listeners, and of its connections to other brokers, by the settings.

They are replaced while the broker runs: connections live on, new ones get the new certificate.

    (A) `load` reads them at the start, once the dynamic settings are known.
    (B) `reload` reads those of the listeners whose settings have changed, or one of whose files. `follow` does the same
        in a thread, since files change without notice. A file has changed if its inode, size or time has.
    (C) A new certificate has the distinguished name of the one before, and at least its alternative names, unless
        ssl.allow.dn.changes and ssl.allow.san.changes allow others (KIP-978). A trust store cannot be added.
    (D) On the listener between brokers, old and new must agree in a handshake, in both roles: brokers are not replaced
        at once. If the old one does not agree with itself (it has expired, say), this does not count.
    (E) One that cannot replace the one in use is logged, and leaves it in place until something changes again.
    (F) Certificates that expire are logged (expiring_certificates.py).

Source: Kafka's `SslFactory`, `DynamicBrokerConfig`; it looks at files only when settings are altered.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple

import structlog

from odradek.broker.network.expiring_certificates import ExpiringCertificates, InUse
from odradek.broker.network.listener_tls import ListenerTls
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.certificate_fields import alternative_names, dated, java_name, subject_of
from odradek.broker.security.cipher_suites import negotiable
from odradek.broker.security.principal_mapping import PrincipalMapping
from odradek.broker.security.tls import explained, server_context, shake_hands
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.settings.tls import TlsSettings
from odradek.broker.settings.tls_checks import SASL_SSL, TlsOfListener, check_listener_tls
from odradek.broker.settings.tls_stores import Loaded, load_stores, tls_of_client
from odradek.storage.files import Files

KEYSTORE, TRUSTSTORE = TlsSettings.ssl_keystore_location, TlsSettings.ssl_truststore_location
ALLOW_DN, ALLOW_SAN = TlsSettings.ssl_allow_dn_changes, TlsSettings.ssl_allow_san_changes
OF_STORES = (KEYSTORE, TlsSettings.ssl_keystore_type, TRUSTSTORE, TlsSettings.ssl_truststore_type)

Version = tuple[object, ...]
"""Of the settings and files of a listener: equal if neither has changed."""

log = structlog.get_logger("broker.network")


class _Keys(NamedTuple):
    """What was read for a listener. `client` is for connections to other brokers, and `trial` as that without host
    names (D); None on other listeners. `certificate` is the listener's own, in DER; `dated` has all of both stores.
    """

    version: Version
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    trial: ssl.SSLContext | None
    certificate: bytes
    has_truststore: bool
    dated: list[InUse]


class _Read(NamedTuple):
    """The outcome for a listener that has changed: `new` can replace `before`, or `problem` says why nothing can."""

    name: str
    before: _Keys
    version: Version
    new: _Keys | None
    problem: str


class Certificates:
    """Of all listeners with TLS. `listeners` and `to_brokers` can be used once `load` has returned."""

    def __init__(self, config: BrokerConfig, files: Files, counts: Mapping[str, AuthenticationCounts]) -> None:
        """`counts` of each listener, by name."""
        self._config = config
        self._files = files
        self._counts = counts
        self._listeners = {each.name: each for each in config.listeners if each.uses_tls}
        self._keys: dict[str, _Keys] = {}
        self._refused: dict[str, Version] = {}
        """What cannot be used, and was logged (E)."""
        self.listeners: dict[str, ListenerTls] = {}
        self._expiring = ExpiringCertificates()

    @property
    def to_brokers(self) -> ssl.SSLContext | None:
        """The TLS of new connections to other brokers: that of the listener between brokers, with this broker as the
        client. None if that has no TLS.
        """
        keys = self._keys.get(self._config.inter_broker_listener)
        return None if keys is None else keys.client

    def own_principal(self) -> str:
        """Returns who this broker is to the others, whose settings are the same, by a handshake with its own listener
        between brokers, which has TLS. Raises SSLError if that would refuse it; ValueError if no rule maps its name.
        """
        name = self._config.inter_broker_listener
        keys = self._keys[name]
        assert keys.trial is not None
        return self.listeners[name].principal_of(shake_hands(keys.server, keys.trial))

    def load(self) -> None:
        """Reads all (A). Raises ConfigError."""
        for name, listener in self._listeners.items():
            tls = self._config.tls_of(listener)
            check_listener_tls(tls)
            keys = self._keys[name] = self._read(tls, self._version(tls))
            has_sasl = listener.security_protocol == SASL_SSL
            mapping = None if has_sasl else PrincipalMapping(tls.value(TlsSettings.ssl_principal_mapping_rules))
            self.listeners[name] = ListenerTls(keys.server, mapping, self._counts[name])

    def check(self, per_broker: Mapping[str, str]) -> None:
        """Raises ConfigError if what the broker would have with these dynamic settings cannot replace what it has."""
        for name, listener in self._listeners.items():
            tls = self._config.tls_with(per_broker, listener)
            version = self._version(tls)
            if version != self._keys[name].version:
                try:
                    self._replacement(self._keys[name], tls, version)
                except ConfigError as error:
                    log.error("certificates not replaced", listener=name, reason=str(error))
                    raise

    def reload(self) -> None:
        """Replaces what has changed (B)."""
        self._replace(self._changed())

    async def follow(self, run_in_thread: Callable[[Callable[[], list[_Read]]], Awaitable[list[_Read]]]) -> None:
        """As `reload`, without waiting for the disk."""
        self._replace(await run_in_thread(self._changed))

    def in_use(self) -> list[InUse]:
        """Returns all certificates of the listeners."""
        return [each for keys in self._keys.values() for each in keys.dated]

    def warn_of_expiry(self, now_ms: int) -> None:
        """Logs which certificates expire soon, or have expired (F)."""
        self._expiring.warn(self.in_use(), now_ms)

    def _changed(self) -> list[_Read]:
        """Reads what has changed. Changes nothing itself: it may run in a thread."""
        found = []
        for name, before in list(self._keys.items()):
            tls = self._config.tls_of(self._listeners[name])
            version = self._version(tls)
            if version in (before.version, self._refused.get(name)):
                continue
            try:
                new = self._replacement(before, tls, version)
            except ConfigError as error:
                found.append(_Read(name, before, version, None, str(error)))
            else:
                found.append(_Read(name, before, version, new, ""))
        return found

    def _replace(self, found: list[_Read]) -> None:
        """Uses what was read, unless something else was replaced meanwhile."""
        for name, before, version, new, problem in found:
            if self._keys[name] is not before:
                continue
            if new is None:
                self._refused[name] = version
                log.error("certificates not replaced", listener=name, reason=problem)
                continue
            self._refused.pop(name, None)
            self._keys[name] = new
            self.listeners[name].context = new.server
            stores = {each.name: self._config.tls_of(self._listeners[name]).value(each) for each in OF_STORES[::2]}
            log.info(
                "certificates replaced",
                listener=name,
                keystore=stores[KEYSTORE.name],
                truststore=stores[TRUSTSTORE.name],
            )

    def _version(self, tls: TlsOfListener) -> Version:
        paths = [tls.value(each) for each in (KEYSTORE, TRUSTSTORE)]
        return (*(tls.value(each) for each in OF_STORES), *(self._version_of_file(path) for path in paths if path))

    def _version_of_file(self, path: str) -> Version:
        try:
            return self._files.version(path)
        except OSError:
            return ()

    def _replacement(self, before: _Keys, tls: TlsOfListener, version: Version) -> _Keys:
        """Raises ConfigError (C, D)."""
        check_listener_tls(tls)
        new = self._read(tls, version)
        _check_names(before.certificate, new.certificate, tls)
        if new.has_truststore and not before.has_truststore:
            name = tls.name(TRUSTSTORE)
            raise ConfigError(name, f"{name} cannot be added to a listener that has had no trust store")
        if before.trial is not None and new.trial is not None and _failure(before.server, before.trial) is None:
            failure = _failure(before.server, new.trial) or _failure(new.server, before.trial)
            if failure is not None:
                name = tls.name(KEYSTORE)
                raise ConfigError(
                    name, f"{name}: brokers with the old certificate and with the new one do not agree: {failure}"
                )
        return new

    def _read(self, tls: TlsOfListener, version: Version) -> _Keys:
        """Raises ConfigError."""
        server = server_context(negotiable(tls.versions, tls.suites), tls.client_auth)
        loaded = load_stores(server, tls, self._files)
        assert loaded.own, "check_listener_tls asks for a key"
        is_between_brokers = tls.listener.name == self._config.inter_broker_listener
        client = tls_of_client(tls, self._files) if is_between_brokers else None
        trial = tls_of_client(tls, self._files, checks_host_name=False) if is_between_brokers else None
        in_use = list(_in_use(tls.listener.name, loaded))
        return _Keys(version, server, client, trial, loaded.own[0], bool(loaded.trusted), in_use)


def _in_use(listener: str, loaded: Loaded) -> Iterator[InUse]:
    """Yields all certificates, but those whose dates only OpenSSL can read."""
    for store, certificates in (("keystore", loaded.own), ("truststore", loaded.trusted)):
        for certificate in certificates:
            with contextlib.suppress(ValueError):
                yield InUse(listener, store, dated(certificate))


def _check_names(before: bytes, new: bytes, tls: TlsOfListener) -> None:
    """Case C. Raises ConfigError."""
    name = tls.name(KEYSTORE)
    was, now = java_name(subject_of(before)), java_name(subject_of(new))
    if was.casefold() != now.casefold() and not tls.value(ALLOW_DN):
        raise ConfigError(
            name,
            f"{name}: the new certificate is of {now} instead of {was}; {ALLOW_DN.name} allows others",
        )
    lost = alternative_names(before) - alternative_names(new)
    if lost and not tls.value(ALLOW_SAN):
        raise ConfigError(
            name,
            f"{name}: the new certificate lacks {', '.join(sorted(lost))}; {ALLOW_SAN.name} allows that",
        )


def _failure(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Why a client and a server do not agree; None if they do."""
    try:
        shake_hands(server, client)
    except ssl.SSLError as error:
        return explained(error)
    return None
