"""Brokers with TLS, logins and ACLs, and what their clients need. All brokers get the same files and settings.

A secured broker has a listener of each protocol. The benchmarks themselves use the one in clear text, to create topics,
the user and the ACLs. With ACLs, every client of that listener is a super user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import wire
from benchmarks.contestants import ApacheKafka, Contestant, Odradek
from benchmarks.measurement import ACLS, TakesNoPart
from benchmarks.processes import free_port
from odradek.broker.security.sasl.scram import MECHANISMS
from odradek.broker.settings.listeners import PROTOCOLS
from odradek.protocol.messages.acls import CreateAclsRequest, CreateAclsResponse
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from odradek.testing.certificates import certificate_of_brokers, trusted
from odradek.testing.client_settings import client_settings, property_text
from odradek.testing.security import DEFAULT_MECHANISM, DEFAULT_PASSWORD, DEFAULT_USER, Security

PLAINTEXT = PROTOCOLS[0]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ITERATIONS = 4096
OTHERS_ACLS = 300
"""ACLs that are not about the measured user, half of them with prefixes."""
CREATE_ACLS_VERSION, ALTER_CREDENTIALS_VERSION = 2, 0


class Client(NamedTuple):
    """What a client needs: `config`, a file of properties for Java, and `librdkafka`, one of JSON."""

    bootstrap: str
    config: Path | None = None
    librdkafka: Path | None = None


def secure(contestant: Contestant, how: str) -> None:
    """Gives a broker that is not started yet its listeners, and the authorizer if `how` is ACLS. Raises TakesNoPart."""
    if isinstance(contestant, Odradek):
        _expect(contestant, "TLS", "broker", "network", "tls_transport")
        if how == ACLS:
            _expect(contestant, "ACLs", "broker", "settings", "authorizers")
    contestant.ports = {PLAINTEXT: contestant.port, **{protocol: free_port() for protocol in PROTOCOLS[1:]}}
    listeners = [f"{protocol}://127.0.0.1:{port}" for protocol, port in contestant.ports.items()]
    controller = [f"CONTROLLER://127.0.0.1:{contestant.port + 1}"] if isinstance(contestant, ApacheKafka) else []
    contestant.settings = {
        "listeners": ",".join(listeners + controller),
        "advertised.listeners": ",".join(listeners),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": _written(contestant, "broker.pem", certificate_of_brokers("broker").pem),
        "sasl.enabled.mechanisms": DEFAULT_MECHANISM,
    }
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        prefix = f"listener.name.{protocol.lower()}.{DEFAULT_MECHANISM.lower()}"
        contestant.settings[f"{prefix}.sasl.jaas.config"] = LOGIN_MODULE
    if how == ACLS:
        contestant.settings |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}


def prepare(contestant: Contestant, how: str) -> None:
    """Adds the user, and the ACLs, to a broker that is started. Raises RuntimeError."""
    scram, salt = MECHANISMS[DEFAULT_MECHANISM], b"salt"
    credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=DEFAULT_USER,
        mechanism=scram.number,
        iterations=ITERATIONS,
        salt=salt,
        salted_password=scram.salted_password(DEFAULT_PASSWORD, salt, ITERATIONS),
    )
    user = AlterUserScramCredentialsRequest(upsertions=[credential])
    answer = wire.call(contestant.port, user, AlterUserScramCredentialsResponse, ALTER_CREDENTIALS_VERSION)
    _expect_success(answer, "the user")
    if how == ACLS:
        acls = CreateAclsRequest(creations=list(_acls()))
        _expect_success(wire.call(contestant.port, acls, CreateAclsResponse, CREATE_ACLS_VERSION), "the ACLs")


def client_of(contestant: Contestant, protocol: str) -> Client:
    """Returns what a client of one listener needs."""
    if protocol == PLAINTEXT:
        return Client(contestant.bootstrap)
    bootstrap = f"127.0.0.1:{contestant.ports[protocol]}"
    security = Security(protocol)
    properties = property_text(client_settings(security, bootstrap, "java", None))
    config = _written(contestant, f"{protocol}.properties", properties.encode())
    settings = json.dumps(client_settings(security, bootstrap, "confluent-kafka", None))
    librdkafka = _written(contestant, f"{protocol}.json", settings.encode())
    return Client(bootstrap, Path(config), Path(librdkafka))


def trusted_file(contestant: Contestant) -> str:
    """Returns the path of the authority's certificate."""
    return _written(contestant, "authority.pem", trusted().encode())


def _acls() -> Iterator[CreateAclsRequest.AclCreation]:
    """The user may use all topics that begin with its rows' names; the others are beside it."""

    def acl(name: str, operation: AclOperation, pattern: AclPatternType, user: str) -> CreateAclsRequest.AclCreation:
        return CreateAclsRequest.AclCreation(
            resource_type=AclResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=AclPermissionType.ALLOW,
        )

    for operation in (AclOperation.READ, AclOperation.WRITE):
        for row in ("produce-", "consume-"):
            yield acl(row, operation, AclPatternType.PREFIXED, DEFAULT_USER)
    for number in range(OTHERS_ACLS):
        pattern = (AclPatternType.LITERAL, AclPatternType.PREFIXED)[number % 2]
        yield acl(f"topic-{number}", AclOperation.READ, pattern, f"user-{number % 50}")


def _written(contestant: Contestant, name: str, data: bytes) -> str:
    """Writes a file that only this user may read, and returns its path."""
    path = contestant.directory / name
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    return str(path)


def _expect(contestant: Odradek, what: str, *module: str) -> None:
    if not contestant.checkout.directory.joinpath(*module).with_suffix(".py").exists():
        raise TakesNoPart(f"this version has no {what}")


def _expect_success(answer: Any, what: str) -> None:
    errors = wire.errors_in(answer)
    if errors:
        raise RuntimeError(f"{what} cannot be added: {errors}")
