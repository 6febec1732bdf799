"""How the brokers of a test are secured, as those of a production are: TLS, logins, access rules.

    security="SASL_SSL"
    security=Security("SASL_SSL", mechanism="PLAIN", users={"alice": "alice-secret"})

PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL are Kafka's protocols. There is one listener, which the brokers of a cluster
use between them, too.

    (A) TLS: certificates.py makes the certificates. With SSL a client may show one, and is the user that it names;
        without one it is User:ANONYMOUS. The setting ssl.client.auth may be `required` instead.
    (B) SASL: the users and their passwords. Without `users` there is one, DEFAULT_USER.
    (C) The brokers themselves are the user BROKER, whose password is random.
    (D) With `acls` or `super_users`, clients may do only what an ACL allows; super users and the brokers may do
        everything. Without both, everybody may. acls.py makes the ACLs.
    (E) What would have no effect is an error: users or a mechanism without SASL, ACLs where nobody has a name.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from odradek.broker.background.stepwise import Steps
from odradek.broker.cluster.dynamic_configs import ConfigChange, DynamicConfigs
from odradek.broker.security.jaas import USER_OPTION, login_module, login_module_class
from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.scram import LEAST_ITERATIONS, new_salt
from odradek.broker.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from odradek.broker.settings.authorizers import CLASSES
from odradek.broker.settings.listeners import PROTOCOLS
from odradek.broker.settings.sasl_listeners import MECHANISMS, SCRAM
from odradek.clients.admin.acls import AclAdmin
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.client_properties import ClientSecurity
from odradek.testing.acls import Acls, principal_of
from odradek.testing.certificates import certificate_of_brokers, context_of_client, trusted

PLAINTEXT = "PLAINTEXT"
DEFAULT_MECHANISM = "SCRAM-SHA-512"
DEFAULT_USER, DEFAULT_PASSWORD = "alice", "alice-secret"
BROKER = "broker"
CREDENTIALS = "scram-credentials"
USERS_OF_CERTIFICATES = "RULE:^CN=([^,]*)$/$1/,DEFAULT"


@dataclasses.dataclass(frozen=True)
class Security:
    """See the head of this file. `mechanism` is how users log in; `users` are their passwords by name;
    `super_users` are names. Raises ValueError (E).
    """

    protocol: str = "SASL_SSL"
    mechanism: str = ""
    users: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    super_users: Sequence[str] = ()
    acls: Sequence[Acls] | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security {self.protocol!r} is not one of {', '.join(PROTOCOLS)}")
        if not self.has_sasl and (self.users or self.mechanism):
            raise ValueError(f"users and mechanism have no use with {self.protocol}: its clients do not log in")
        if self.mechanism and self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism {self.mechanism!r} is not one of {', '.join(MECHANISMS)}")
        if self.has_acls and self.protocol == PLAINTEXT:
            raise ValueError("ACLs and super users have no use with PLAINTEXT: nobody has a name")
        if BROKER in self.users:
            raise ValueError(f"the user {BROKER} is that of the brokers")

    @property
    def has_acls(self) -> bool:
        """Whether clients may do only what an ACL allows (D)."""
        return self.acls is not None or bool(self.super_users)

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    def credentials_of(self, user: str | None) -> ClientCredentials | None:
        """Returns what a user logs in with, or the first one. None without SASL. Raises ValueError."""
        if not self.has_sasl:
            return None
        passwords = self._passwords()
        name = next(iter(passwords)) if user is None else user
        if name not in passwords:
            raise ValueError(f"there is no user {name!r}; the users: {', '.join(passwords)}")
        return ClientCredentials(self.mechanism or DEFAULT_MECHANISM, name, passwords[name])

    def shown_by(self, user: str | None) -> str | None:
        """Returns whose certificate a client shows; None: it shows none (A). Raises ValueError."""
        if self.protocol == PLAINTEXT and user is not None:
            raise ValueError(f"with PLAINTEXT nobody can be the user {user!r}")
        return user if self.protocol == "SSL" else None

    def of_client(self, user: str | None = None) -> ClientSecurity:
        """Returns how the connections of a client are secured. Raises ValueError, StartError."""
        shown = self.shown_by(user)
        tls = context_of_client(shown) if self.has_tls else None
        return ClientSecurity(self.protocol, tls, self.credentials_of(user))

    def of_brokers(self) -> ClientSecurity:
        """Returns the same for a client that acts for the brokers. Raises StartError."""
        credentials = self._own_credentials() if self.has_sasl else None
        tls = context_of_client(self.shown_by(BROKER)) if self.has_tls else None
        return ClientSecurity(self.protocol, tls, credentials)

    def settings(self, address: str, directory: Path) -> dict[str, str]:
        """Returns the settings of a broker that listens on `address`. A file with passwords goes into `directory` and
        must stay as long as brokers start. Raises StartError.
        """
        found = {"listeners": f"{self.protocol}://{address}"}
        if self.protocol != PLAINTEXT:
            found["security.inter.broker.protocol"] = self.protocol
        if self.has_tls:
            found |= self._tls_settings()
        if self.has_sasl:
            found |= self._sasl_settings(directory)
        if self.has_acls:
            found["authorizer.class.name"] = CLASSES[0]
            found["super.users"] = ";".join(map(principal_of, (BROKER, *self.super_users)))
        return found

    def stored_credentials(self) -> list[ClientCredentials]:
        """Returns what users and brokers log in with by SCRAM: nothing with another mechanism."""
        own = self._own_credentials() if self.has_sasl else None
        if own is None or own.mechanism not in SCRAM:
            return []
        return [own, *(ClientCredentials(own.mechanism, *each) for each in self._passwords().items())]

    def _passwords(self) -> Mapping[str, str]:
        return self.users or {DEFAULT_USER: DEFAULT_PASSWORD}

    def _own_credentials(self) -> ClientCredentials:
        return ClientCredentials(self.mechanism or DEFAULT_MECHANISM, BROKER, _password_of_brokers())

    def _tls_settings(self) -> dict[str, str]:
        own = certificate_of_brokers(BROKER)
        found = {
            "ssl.keystore.key": own.key_pem.decode(),
            "ssl.keystore.certificate.chain": own.chain_pem.decode(),
            "ssl.truststore.certificates": trusted(),
        }
        if not self.has_sasl:
            found |= {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": USERS_OF_CERTIFICATES}
        return found

    def _sasl_settings(self, directory: Path) -> dict[str, str]:
        own = self._own_credentials()
        passwords = {BROKER: own.password, **self._passwords()}
        options = {"username": own.username, "password": own.password}
        found = {"sasl.enabled.mechanisms": own.mechanism, "sasl.mechanism.inter.broker.protocol": own.mechanism}
        if own.mechanism in SCRAM:
            file = directory / CREDENTIALS
            file.touch(mode=0o600)
            file.write_text("".join(f"{own.mechanism}=[name={n},password={p}]\n" for n, p in passwords.items()))
            found["odradek.scram.credentials.file"] = str(file)
        else:
            options |= {f"{USER_OPTION}{name}": password for name, password in passwords.items()}
        prefix = f"listener.name.{self.protocol.lower()}.{own.mechanism.lower()}."
        return found | {f"{prefix}sasl.jaas.config": login_module(login_module_class(own.mechanism), options)}


def as_security(security: str | Security) -> Security:
    """Returns the security of a protocol's name, with its defaults. Raises ValueError."""
    return Security(security) if isinstance(security, str) else security


async def add_acls(security: Security, bootstrap: str, source: Random) -> None:
    """Adds the ACLs at one broker, where they hold then. `source` draws nonces. Raises ProtocolError, NetworkError."""
    wanted = [acl for each in security.acls or () for acl in each]
    if wanted:
        async with AdminClient(bootstrap, connect=security.of_brokers().connect(source)) as admin:
            await AclAdmin(admin).create(wanted)


async def set_passwords(security: Security, configs: DynamicConfigs, source: Random) -> None:
    """Sets the passwords that clients log in with by SCRAM, which may differ from those of a snapshot. `source` draws
    the salts. Raises ProtocolError.
    """
    for credentials in security.stored_credentials():
        mechanism, salt = SCRAM_MECHANISMS[credentials.mechanism], new_salt(source)
        salted_password = mechanism.salted_password(credentials.password, salt, LEAST_ITERATIONS)
        text = mechanism.credential(salted_password, salt, LEAST_ITERATIONS).text()
        await configs.alter_user(credentials.username, _setting(mechanism.name, text))


def _setting(name: str, text: str) -> ConfigChange:
    def change(before: Mapping[str, str]) -> Steps[dict[str, str]]:
        yield
        return {**before, name: text}

    return change


def module_of(credentials: ClientCredentials) -> str:
    """Returns the text of a client's login module."""
    options = {"username": credentials.username, "password": credentials.password}
    return login_module(login_module_class(credentials.mechanism), options)


@cache
def _password_of_brokers() -> str:
    return secrets.token_urlsafe()
