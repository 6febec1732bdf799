"""Brokers whose listeners use TLS, by their settings."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
import structlog.testing
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.server import Broker
from odradek.broker.settings.config import ConfigError
from odradek.broker.start_error import StartError
from odradek.clients.admin.client_properties import ClientSecurity, security_of_properties
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NetworkError, NodeUnreachable
from odradek.protocol.errors import ErrorCode
from odradek.storage.files import OsFiles
from odradek.testing import in_process_broker
from tests.broker.handlers.sasl_broker import PLAIN_MODULE, sasl_broker
from tests.patience import until
from tests.tls_files import NAMES, TlsFiles
from tests.wire.records import produce_on
from tests.zookeeper.brokers import brokers_on_zookeeper
from tests.zookeeper.certificates import PASSWORD, Authority

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def tls_of(properties: dict[str, str]) -> ssl.SSLContext:
    tls = security_of_properties(properties, OsFiles(), {}).tls
    assert tls is not None
    return tls


async def connect(broker: Broker, properties: dict[str, str], endpoint: int = 0) -> NetworkClient:
    return await NetworkClient.connect("127.0.0.1", broker.endpoints[endpoint].port, tls=tls_of(properties))


async def produces(broker: Broker, client: NetworkClient) -> None:
    if broker.metadata.topic("t") is None:
        await broker.controller.topics.create([NewTopic("t", 1, 1)], timeout_ms=5000)
    assert await produce_on(client, "t", b"x" * 200_000) == ErrorCode.NONE


async def test_a_listener_with_tls_serves_beside_a_plain_one(files: TlsFiles) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **files.stores()}
    async with in_process_broker(settings) as broker:
        async with await connect(broker, files.client(), endpoint=1) as client:
            await produces(broker, client)
        async with await NetworkClient.connect("127.0.0.1", broker.endpoints[0].port) as client:
            await produces(broker, client)


def one_line(pem: bytes) -> str:
    """As in a property file whose lines are continued."""
    return pem.decode().replace("\n", " ").strip()


async def test_keys_and_certificates_may_stand_in_any_form(files: TlsFiles) -> None:
    key = files.broker
    inline = {
        "ssl.keystore.key": one_line(key.key_pem),
        "ssl.keystore.certificate.chain": one_line(key.chain_pem),
        "ssl.truststore.certificates": one_line(files.authority.pem),
    }
    forms = {
        "PEM": files.stores(),
        "encrypted PEM": {
            "ssl.keystore.location": files.write("encrypted.pem", key.encrypted_pem()),
            "ssl.key.password": PASSWORD,
        },
        "PKCS12": {
            "ssl.keystore.location": files.write("key.p12", key.pkcs12()),
            "ssl.keystore.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.key.password": PASSWORD,
        },
        "PKCS12 in .jks": {
            "ssl.keystore.location": files.write("key.jks", key.pkcs12()),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": files.write("trusted.jks", files.authority.pkcs12()),
            "ssl.truststore.password": PASSWORD,
        },
        "settings": inline,
        "settings without blanks": {name: text.replace("\n", "") for name, text in inline.items()},
        "an encrypted key in a setting": inline
        | {
            "ssl.keystore.key": key.encrypted_pem().decode().partition("-----BEGIN CERTIFICATE")[0],
            "ssl.key.password": PASSWORD,
        },
    }
    for form, stores in forms.items():
        settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL", **stores}
        async with in_process_broker(settings) as broker, await connect(broker, files.client()) as client:
            assert client.is_connected, form


@pytest.mark.parametrize(
    ("stores", "problem"),
    [
        ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location=/no/such/file: No such file or directory"),
        ({"ssl.keystore.location": "{old.jks}"}, "keytool -importkeystore"),
        ({"ssl.keystore.location": "{encrypted.pem}"}, "has an encrypted key, but no password is set"),
        (
            {"ssl.keystore.location": "{encrypted.pem}", "ssl.key.password": "secret"},
            "has an encrypted key, and the password is wrong",
        ),
        (
            {"ssl.keystore.location": "{key.p12}", "ssl.keystore.password": "secret"},
            "cannot be opened: the password is wrong or missing",
        ),
        (
            {"ssl.keystore.location": "{key.p12}", "ssl.keystore.password": PASSWORD, "ssl.key.password": "secret"},
            "another one is set for the key",
        ),
        ({"ssl.keystore.location": "{authority.pem}"}, "contains no private key with its certificate"),
        (
            {"ssl.keystore.key": "secret", "ssl.keystore.certificate.chain": "secret"},
            "ssl.keystore.key is neither PEM nor PKCS12",
        ),
    ],
)
async def test_a_key_that_cannot_be_used_ends_the_start_by_its_name(
    files: TlsFiles, tmp_path: Path, stores: dict[str, str], problem: str
) -> None:
    made = {
        "{old.jks}": files.write("old.jks", b"\xfe\xed\xfe\xed" + bytes(20)),
        "{encrypted.pem}": files.write("encrypted.pem", files.broker.encrypted_pem()),
        "{key.p12}": files.write("key.p12", files.broker.pkcs12()),
        "{authority.pem}": files.trusted,
    }
    settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    with pytest.raises(StartError) as caught:
        async with in_process_broker(
            settings | {name: made.get(text, text) for name, text in stores.items()}, data_dir=tmp_path / "data"
        ):
            pass
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_each_listener_has_the_key_of_its_own(files: TlsFiles) -> None:
    other = Authority("Other")
    own = files.write("other.pem", other.sign("second", "127.0.0.1").pem)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,ONE://127.0.0.1:0,TWO://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ONE:SSL,TWO:SSL",
        "listener.name.two.ssl.keystore.location": own,
        **files.stores(),
    }
    trusts_other = files.client() | {"ssl.truststore.location": files.write("trusted.pem", other.pem)}
    async with in_process_broker(settings) as broker:
        for endpoint, trusting, not_trusting in ((1, files.client(), trusts_other), (2, trusts_other, files.client())):
            async with await connect(broker, trusting, endpoint):
                pass
            with pytest.raises(NodeUnreachable, match="TLS failed: the certificate is not accepted"):
                await connect(broker, not_trusting, endpoint)


SERVERS_SEEN = [
    ("expired", "the certificate is not accepted: certificate has expired"),
    ("other authority", "the certificate is not accepted: self-signed certificate in certificate chain"),
    ("other host", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
]


@pytest.mark.parametrize(("kind", "problem"), SERVERS_SEEN)
async def test_a_wrong_certificate_of_the_broker_is_told_to_its_clients_and_logged(
    files: TlsFiles, kind: str, problem: str
) -> None:
    keys = {
        "expired": files.authority.sign("broker", *NAMES, expired=True),
        "other authority": Authority("Other").sign("broker", *NAMES),
        "other host": files.authority.sign("broker", "elsewhere.example.com"),
    }
    files.write("broker.pem", keys[kind].pem)
    async with in_process_broker(files.listener()) as broker:
        with structlog.testing.capture_logs() as logs:
            with pytest.raises(NodeUnreachable, match=re.escape(problem)):
                await connect(broker, files.client())
            await until(lambda: not broker.socket_server.connections)
        assert [(entry["event"], entry["client"]) for entry in logs] == [("TLS handshake failed", "127.0.0.1")]


async def test_a_tls_client_of_a_listener_with_sasl_alone_is_named_in_the_log(files: TlsFiles) -> None:
    async with sasl_broker() as broker:
        with structlog.testing.capture_logs() as logs:
            with pytest.raises(NodeUnreachable):
                await connect(broker, files.client())
            await until(lambda: not broker.socket_server.connections)
        assert [entry["event"] for entry in logs] == ["client speaks TLS, which this listener does not"]


async def test_versions_and_suites_are_those_of_the_settings(files: TlsFiles) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = files.listener() | {"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": suite}
    async with in_process_broker(settings) as broker:
        async with await connect(broker, files.client()) as client:
            assert client._transport is not None
            assert client._transport.get_extra_info("cipher")[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        with pytest.raises(NetworkError):
            await connect(broker, files.client() | {"ssl.enabled.protocols": "TLSv1.3"})
        with pytest.raises(NetworkError):
            await connect(broker, files.client() | {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})


async def test_a_certificate_in_the_trust_store_is_trusted_without_its_authority(files: TlsFiles) -> None:
    alice, bob = files.authority.sign("alice"), files.authority.sign("bob")
    only_alice = files.write("alice.pem", alice.certificate.public_bytes(Encoding.PEM))
    settings = files.listener("required") | {"ssl.truststore.location": only_alice}
    async with in_process_broker(settings) as broker:
        async with await connect(broker, files.client(alice)):
            assert [each.info.principal for each in broker.socket_server.connections] == ["User:CN=alice"]
        with pytest.raises(NetworkError):
            await connect(broker, files.client(bob))


async def test_brokers_replicate_over_tls_with_certificates_of_both_sides(files: TlsFiles, tmp_path: Path) -> None:
    settings = {name.replace(".", "_"): text for name, text in files.listener("required").items()}
    async with brokers_on_zookeeper(tmp_path, 3, **settings) as brokers:
        await brokers.create("t", 2, 1, 3)
        leader = brokers.all[1]
        async with await connect(leader, files.client(files.authority.sign("alice"))) as client:
            assert await produce_on(client, "t", b"replicated", acks=-1) == ErrorCode.NONE
        await until(
            lambda: all(
                sum(log.state.log_end_offset for log in broker.log_manager.logs.values()) == 1 for broker in brokers.all
            )
        )
        principals = {each.info.principal for each in leader.socket_server.connections}
        assert "User:CN=broker" in principals


async def test_a_broker_of_another_authority_does_not_follow(files: TlsFiles, tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = TlsFiles(tmp_path / "stranger")
    settings = {name.replace(".", "_"): text for name, text in files.listener("required").items()}
    async with brokers_on_zookeeper(tmp_path, 1, **settings) as brokers:
        brokers.settings = stranger.listener("required")
        with structlog.testing.capture_logs() as logs:
            other = brokers.broker(2)
            await other.start()
            try:
                await until(lambda: any("TLS" in str(entry) for entry in logs))
                assert len(other.metadata.brokers) == 0, "the controller cannot tell it anything"
            finally:
                await other.stop(hand_over=False)


@pytest.mark.parametrize(("algorithm", "brokers_known"), [("https", 0), ("", 2)])
async def test_brokers_verify_each_others_names_unless_the_setting_is_empty(
    files: TlsFiles, tmp_path: Path, algorithm: str, brokers_known: int
) -> None:
    elsewhere = files.write("elsewhere.pem", files.authority.sign("broker", "elsewhere.example.com").pem)
    settings = files.listener() | {"ssl.keystore.location": elsewhere}
    settings["ssl.endpoint.identification.algorithm"] = algorithm
    values = {name.replace(".", "_"): text for name, text in settings.items()}
    async with brokers_on_zookeeper(tmp_path, 1, **values) as brokers:
        with structlog.testing.capture_logs() as logs:
            other = brokers.broker(2)
            await other.start()
            try:
                if not brokers_known:
                    await until(lambda: any("mismatch" in str(entry) for entry in logs))
                await until(lambda: len(other.metadata.brokers) == brokers_known)
            finally:
                await other.stop(hand_over=False)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not one of PLAINTEXT, SSL"),
        ({"security.protocol": "SSL", "ssl.provider": "a.B"}, "ssl.provider is not supported"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/no/file"},
            "ssl.truststore.location=/no/file: No such",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "secret"}, "ssl.keystore.key needs"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols names SSLv3"),
        ({"sasl.jaas.config": "secret"}, "sasl.jaas.config has no use: security.protocol is PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}, "sasl.mechanism has no use"),
        ({"ssl.truststore.location": "/no/file"}, "ssl.truststore.location has no use"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism=GSSAPI is not one of PLAIN, SCRAM-SHA-256,"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({**SASL, "sasl.jaas.config": "a.B required;"}, "sasl.jaas.config: the login module of PLAIN is org.apache"),
        ({**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required password="secret";'}, "sasl.jaas.config lacks the opt"),
        ({**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required password="secret'}, "sasl.jaas.config:1: a text in"),
    ],
)
def test_a_clients_properties_that_cannot_be_kept_are_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        security_of_properties(properties, OsFiles(), {})
    assert str(caught.value).startswith(problem)
    assert "secret" not in str(caught.value)


def test_a_clients_properties_may_be_plain() -> None:
    assert security_of_properties({"security.protocol": "PLAINTEXT", "acks": "all"}, OsFiles(), {}) == ClientSecurity()
    assert security_of_properties({}, OsFiles(), {}) == ClientSecurity()


async def test_a_clients_host_name_is_verified_unless_the_setting_is_empty(files: TlsFiles) -> None:
    elsewhere = files.write("elsewhere.pem", files.authority.sign("broker", "elsewhere.example.com").pem)
    async with in_process_broker(files.listener() | {"ssl.keystore.location": elsewhere}) as broker:
        with pytest.raises(NodeUnreachable, match=r"IP address mismatch, certificate is not valid for '127\.0\.0\.1'"):
            await connect(broker, files.client())
        async with await connect(broker, files.client() | {"ssl.endpoint.identification.algorithm": ""}):
            pass
