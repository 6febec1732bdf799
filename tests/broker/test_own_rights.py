"""A broker of a cluster with an authorizer says at its start if the other brokers would refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata_store import acl_znodes
from odradek.broker.metadata_store.acl_znodes import acl_path, encode_acls
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.start_up import make_entries
from odradek.broker.network.certificates import Certificates
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from odradek.storage.files import OsFiles
from tests.tls_files import TlsFiles

REFUSED = "other brokers refuse what this one sends"
BAD_CERTIFICATE = "other brokers refuse the certificate of this one"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
CLUSTER = ResourcePattern(AclResourceType.CLUSTER, AclPatternType.LITERAL, CLUSTER_NAME)
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="broker" password="x" user_broker="x";'
    ),
}


async def warnings(
    directory: Path, settings: Mapping[str, str], *acls: AccessControlEntry, shared: bool = True
) -> list[Any]:
    """What a start logs about the rights of the broker: its principal if it has none."""
    store = SharedStore(session_timeout_ms=60_000)
    before = store.session("before")
    await before.open()
    await make_entries(before, acl_znodes.PERSISTENT_PATHS)
    if acls:
        await before.create(acl_path(CLUSTER), encode_acls(acls))

    def session(*_: object) -> MetadataStore:
        return store.session("broker")

    given = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")}
    config = BrokerConfig.from_mapping({**given, **settings})
    broker = Broker(config, new_metadata_store=session) if shared else Broker(config)
    with capture_logs() as logs:
        await broker.start()
        await broker.stop()
    await before.close()
    return [line.get("principal", line["event"]) for line in logs if line["event"] in (REFUSED, BAD_CERTIFICATE)]


def allowing(principal: str, operation: AclOperation = AclOperation.CLUSTER_ACTION) -> AccessControlEntry:
    return AccessControlEntry(principal, "10.0.0.1", operation, AclPermissionType.ALLOW)


async def test_a_broker_without_rights_says_so(tmp_path: Path) -> None:
    assert await warnings(tmp_path, AUTHORIZER) == ["User:ANONYMOUS"]


async def test_the_user_that_a_broker_logs_in_as_needs_the_rights(tmp_path: Path) -> None:
    assert await warnings(tmp_path, {**AUTHORIZER, **SASL, "super.users": "User:ANONYMOUS"}) == ["User:broker"]


@pytest.mark.parametrize(
    ("settings", "acls"),
    [
        ({**AUTHORIZER, "super.users": "User:ANONYMOUS"}, ()),
        ({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}, ()),
        (AUTHORIZER, (allowing("User:ANONYMOUS"),)),
        (AUTHORIZER, (allowing("User:*", AclOperation.ALL),)),
        ({**AUTHORIZER, **SASL, "super.users": "User:broker"}, ()),
        ({}, ()),
    ],
)
async def test_a_broker_with_rights_is_silent(
    tmp_path: Path, settings: Mapping[str, str], acls: tuple[AccessControlEntry, ...]
) -> None:
    assert await warnings(tmp_path, settings, *acls) == []


async def test_another_operation_is_no_right(tmp_path: Path) -> None:
    found = await warnings(tmp_path, AUTHORIZER, allowing("User:ANONYMOUS", AclOperation.ALTER))
    assert found == ["User:ANONYMOUS"]


async def test_a_broker_that_is_alone_needs_no_rights(tmp_path: Path) -> None:
    assert await warnings(tmp_path, AUTHORIZER, shared=False) == []


@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        ({"ssl.client.auth": "none"}, "User:ANONYMOUS"),
        ({"ssl.client.auth": "required"}, "User:CN=broker"),
        ({"ssl.client.auth": "requested", "ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/U"}, "User:BROKER"),
    ],
)
def test_the_certificate_tells_who_a_broker_is(tmp_path: Path, settings: Mapping[str, str], principal: str) -> None:
    config = BrokerConfig.from_mapping({**TlsFiles(tmp_path).listener(), **settings})
    certificates = Certificates(config, OsFiles(), {"SSL": AuthenticationCounts()})
    certificates.load()
    assert certificates.own_principal() == principal


async def test_a_certificate_that_other_brokers_refuse_is_a_warning(tmp_path: Path) -> None:
    settings = TlsFiles(tmp_path).listener("required")
    (tmp_path / "other").mkdir()
    settings["ssl.truststore.location"] = TlsFiles(tmp_path / "other").trusted
    assert await warnings(tmp_path, {**AUTHORIZER, **settings}) == [BAD_CERTIFICATE]
