"""TLS to ZooKeeper, by the settings: key stores and trust stores, host names, versions and cipher suites."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.storage.files import OsFiles
from tests.zookeeper.certificates import PASSWORD, Authority, Signed, server_context
from tests.zookeeper.model import ServedConnection, ZooKeeperModel

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
SSL = "zookeeper.ssl."
AUTHORITY, ANOTHER = Authority(), Authority("Another Authority")
SERVER = AUTHORITY.sign("zookeeper", "127.0.0.1", "localhost")
CLIENT = AUTHORITY.sign("kafka-broker")


class Room:
    """Files of a test, and the settings of a broker that uses them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings = {
            "zookeeper.connection.timeout.ms": "20000",
            "zookeeper.clientCnxnSocket": NETTY,
            f"{SSL}client.enable": "true",
            "log.dirs": str(directory),
        }
        self.set("truststore.location", self.file("trusted.pem", AUTHORITY.pem))

    def file(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def set(self, name: str, text: str) -> None:
        self.settings[f"{SSL}{name}"] = text

    def config(self, address: str = "127.0.0.1:1") -> BrokerConfig:
        return BrokerConfig.single_node({"zookeeper.connect": address, **self.settings})

    @asynccontextmanager
    async def served(
        self,
        server: Signed = SERVER,
        trusted: Authority | None = None,
        change: Callable[[ssl.SSLContext], object] = lambda _: None,
    ) -> AsyncIterator[tuple[ZooKeeperModel, str]]:
        model, context = ZooKeeperModel(tick_s=0.5), server_context(server, trusted, self.directory)
        change(context)
        async with model.served(tls=context) as address:
            yield model, address

    async def connect(self, model: ZooKeeperModel, address: str) -> tuple[str, str]:
        """Opens a store, uses it, and closes it. Returns the suite and the version of its connection."""
        background = Background()
        store = metadata_store_of(self.config(address), OsFiles(), background, random.Random(1))
        try:
            await store.open()
            assert await store.create("/n_", bytes(100_000), sequential=True) == "/n_0000000000"
            assert len((await store.get("/n_0000000000")).data or b"") == 100_000
            (connection,) = model.connections
            return cipher_of(connection)
        finally:
            await store.close()
            await background.stop()

    async def refused(self, model: ZooKeeperModel, address: str) -> str:
        """Returns why a store cannot be opened."""
        self.settings["zookeeper.connection.timeout.ms"] = "500"
        with pytest.raises(StoreUnavailable) as caught:
            await self.connect(model, address)
        return str(caught.value)

    def loading(self) -> str:
        """Returns why the settings are refused when their files are read."""
        with pytest.raises(ConfigError) as caught:
            metadata_store_of(self.config(), OsFiles(), Background(), random.Random(1))
        message = str(caught.value)
        assert PASSWORD not in message
        return message


def cipher_of(connection: ServedConnection) -> tuple[str, str]:
    assert connection._transport is not None
    suite, version, _ = connection._transport.get_extra_info("cipher")
    return suite, version


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


# Key stores and trust stores

STORES = {
    "PEM": ("key.pem", CLIENT.pem, "trusted.pem", AUTHORITY.pem, None),
    "PEM with a password": (
        "key.pem",
        CLIENT.encrypted_pem(),
        "trusted.pem",
        b"# \xc3\xbc\n" + AUTHORITY.pem,
        PASSWORD,
    ),
    "PKCS12": ("key.p12", CLIENT.pkcs12(), "trusted.p12", AUTHORITY.pkcs12(), PASSWORD),
    "PKCS12 in .jks": ("key.jks", CLIENT.pkcs12(), "trusted.jks", AUTHORITY.pkcs12(), PASSWORD),
}


@pytest.mark.parametrize("kind", STORES)
async def test_both_sides_show_certificates(room: Room, kind: str) -> None:
    key, key_data, trusted, trusted_data, password = STORES[kind]
    room.set("keystore.location", room.file(key, key_data))
    room.set("truststore.location", room.file(trusted, trusted_data))
    for store in ("keystore", "truststore") if password else ():
        room.set(f"{store}.password", PASSWORD)
    async with room.served(trusted=AUTHORITY) as (model, address):
        assert (await room.connect(model, address))[1] == "TLSv1.2"


@pytest.mark.parametrize(
    ("name", "kind"), [("key.pem", "pem"), ("key.p12", "PKCS12"), ("key.p12", "JKS"), ("key.jks", "pkcs12")]
)
def test_a_type_that_fits_is_accepted(room: Room, name: str, kind: str) -> None:
    room.set("keystore.location", room.file(name, CLIENT.pem if name == "key.pem" else CLIENT.pkcs12()))
    room.set("keystore.password", PASSWORD)
    room.set("keystore.type", kind)
    room.set("truststore.type", "PEM")
    metadata_store_of(room.config(), OsFiles(), Background(), random.Random(1))


@pytest.mark.parametrize(
    ("data", "more", "problem"),
    [
        (
            b"\xfe\xed\xfe\xed" + bytes(20),
            {},
            "is a key store of type JKS, which only Java reads; convert it: keytool -importkeystore "
            "-srckeystore {path} -destkeystore {stem}.p12 -deststoretype PKCS12",
        ),
        (b"\xce\xce\xce\xce" + bytes(20), {}, "is a key store of type JCEKS"),
        (b"", {}, "is neither PEM nor PKCS12"),
        (b"\x30 not DER", {}, "cannot be opened"),
        (CLIENT.pkcs12(), {}, "cannot be opened: the password is wrong or missing"),
        (CLIENT.pkcs12(), {"password": "wrong"}, "cannot be opened: the password is wrong or missing"),
        (CLIENT.pkcs12()[:-5], {"password": PASSWORD}, "cannot be opened"),
        (AUTHORITY.pkcs12(), {"password": PASSWORD}, "contains no private key with a certificate"),
        (CLIENT.pkcs12(), {"password": PASSWORD, "type": "PEM"}, "is PKCS12, but its type is set to PEM"),
        (CLIENT.pem, {"type": "PKCS12"}, "is PEM, but its type is set to PKCS12"),
        (CLIENT.encrypted_pem(), {}, "has an encrypted key, but no password is set"),
        (CLIENT.encrypted_pem(), {"password": "wrong"}, "has an encrypted key, and the password is wrong"),
        (CLIENT.chain_pem, {}, "contains no private key with its certificate"),
        (CLIENT.key_pem, {}, "contains no private key with its certificate"),
        (SERVER.key_pem + CLIENT.chain_pem, {}, "contains no private key with its certificate"),
    ],
)
def test_a_key_store_that_cannot_be_used_is_refused_by_name(
    room: Room, data: bytes, more: dict[str, str], problem: str
) -> None:
    path = room.file("store.jks", data)
    room.set("keystore.location", path)
    for name, text in more.items():
        room.set(f"keystore.{name}", text)
    message = room.loading()
    stem = path.removesuffix(".jks")
    assert message.startswith(f"{SSL}keystore.location={path}: the file {problem.format(path=path, stem=stem)}")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (CLIENT.key_pem, "contains no certificate"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "contains a certificate that cannot be read",
        ),
        (b"\xfe\xed\xfe\xed", "is a key store of type JKS"),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_refused_by_name(room: Room, data: bytes, problem: str) -> None:
    path = room.file("trusted", data)
    room.set("truststore.location", path)
    assert room.loading().startswith(f"{SSL}truststore.location={path}: the file {problem}")


def test_a_missing_store_is_refused_by_name(room: Room) -> None:
    for store in ("truststore", "keystore"):
        room = Room(room.directory)
        room.set(f"{store}.location", "/no/such/file")
        assert room.loading() == f"{SSL}{store}.location=/no/such/file: No such file or directory"


def test_a_missing_package_is_named(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    room.set("keystore.location", room.file("key.p12", CLIENT.pkcs12()))
    assert "pip install 'odradek[security]'" in room.loading()


# What is verified


async def test_a_client_without_a_certificate_is_refused_where_one_is_required(room: Room) -> None:
    async with room.served(trusted=AUTHORITY) as (model, address):
        assert address in await room.refused(model, address)


async def test_the_name_of_the_server_is_verified_unless_the_setting_is_empty(room: Room) -> None:
    async with room.served(AUTHORITY.sign("zookeeper", "other.example.com")) as (model, address):
        assert "127.0.0.1" in (reason := await room.refused(model, address))
        assert "certificate verify failed" in reason
        room = Room(room.directory)
        room.set("endpoint.identification.algorithm", "")
        await room.connect(model, address)


async def test_the_name_is_that_of_the_setting(room: Room) -> None:
    room.set("endpoint.identification.algorithm", "https")
    async with room.served(AUTHORITY.sign("zookeeper", "localhost")) as (model, address):
        await room.connect(model, address.replace("127.0.0.1", "localhost"))
        assert "certificate verify failed" in await room.refused(model, address)


@pytest.mark.parametrize("algorithm", ["HTTPS", ""])
async def test_a_server_of_another_authority_is_refused(room: Room, algorithm: str) -> None:
    room.set("endpoint.identification.algorithm", algorithm)
    async with room.served(ANOTHER.sign("zookeeper", "127.0.0.1")) as (model, address):
        assert "certificate verify failed" in await room.refused(model, address)


async def test_without_a_trust_store_the_systems_authorities_count(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    del room.settings[f"{SSL}truststore.location"]
    async with room.served() as (model, address):
        assert "certificate verify failed" in await room.refused(model, address)
        monkeypatch.setenv("SSL_CERT_FILE", room.file("system.pem", AUTHORITY.pem))
        room.settings["zookeeper.connection.timeout.ms"] = "20000"
        await room.connect(model, address)


async def test_a_server_without_tls_is_refused(room: Room) -> None:
    model = ZooKeeperModel(tick_s=0.5)
    async with model.served() as address:
        assert address in await room.refused(model, address)


# Versions and cipher suites


async def test_the_versions_are_those_of_the_settings(room: Room) -> None:
    async with room.served(change=lambda context: setattr(context, "minimum_version", ssl.TLSVersion.TLSv1_3)) as (
        model,
        address,
    ):
        room.set("enabled.protocols", "TLSv1.2,TLSv1.3")
        assert (await room.connect(model, address))[1] == "TLSv1.3"
        model.wipe()
        room.set("enabled.protocols", "")
        room.set("protocol", "TLSv1.3")
        assert (await room.connect(model, address))[1] == "TLSv1.3"
        room.set("enabled.protocols", "TLSv1.2")
        await room.refused(model, address)


@pytest.mark.parametrize(
    ("suite", "negotiated"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
async def test_the_cipher_suites_are_those_of_the_settings(room: Room, suite: str, negotiated: str) -> None:
    room.set("cipher.suites", suite)
    room.set("enabled.protocols", "TLSv1.3,TLSv1.2")
    async with room.served() as (model, address):
        assert await room.connect(model, address) == (negotiated, "TLSv1.2")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"protocol": "TLSv1.1"}, r"zookeeper\.ssl\.protocol names TLSv1\.1, not only TLSv1\.2 and TLSv1\.3"),
        ({"enabled.protocols": "TLSv1.2,SSLv3"}, r"zookeeper\.ssl\.enabled\.protocols names SSLv3"),
        ({"cipher.suites": "TLS_X"}, r"zookeeper\.ssl\.cipher\.suites names the cipher suite TLS_X, which is unknown"),
        (
            {"enabled.protocols": "TLSv1.3", "cipher.suites": "TLS_AES_128_GCM_SHA256"},
            r"zookeeper\.ssl\.cipher\.suites names only some suites of TLSv1\.3",
        ),
        ({"cipher.suites": "TLS_AES_128_GCM_SHA256"}, r"names no suite of TLSv1\.2"),
        ({"endpoint.identification.algorithm": "LDAPS"}, "=LDAPS is neither HTTPS nor empty"),
        ({"keystore.type": "BCFKS"}, r"zookeeper\.ssl\.keystore\.type=BCFKS is not one of JKS, PKCS12, PEM"),
        ({"truststore.type": "x"}, r"zookeeper\.ssl\.truststore\.type=x is not one of"),
        ({"crl.enable": "true"}, r"zookeeper\.ssl\.crl\.enable"),
        ({"ocsp.enable": "true"}, r"zookeeper\.ssl\.ocsp\.enable"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(room: Room, settings: dict[str, str], problem: str) -> None:
    for name, text in settings.items():
        room.set(name, text)
    with pytest.raises(ConfigError, match=problem):
        room.config().check_protection()


@pytest.mark.parametrize("socket", ["", "org.apache.zookeeper.ClientCnxnSocketNIO"])
def test_tls_needs_the_socket_that_kafka_needs(room: Room, socket: str) -> None:
    room.settings["zookeeper.clientCnxnSocket"] = socket
    with pytest.raises(ConfigError, match=rf"client\.enable=true needs zookeeper\.clientCnxnSocket={NETTY}"):
        room.config()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("keystore.location", "/k"),
        ("keystore.password", "secret"),
        ("truststore.location", "/t"),
        ("truststore.password", "secret"),
        ("protocol", "TLSv1.3"),
        ("enabled.protocols", "TLSv1.3"),
        ("cipher.suites", "x"),
    ],
)
def test_a_promise_of_tls_without_tls_is_refused(name: str, text: str) -> None:
    for settings in ({"zookeeper.connect": "z"}, {}):
        with pytest.raises(ConfigError, match=rf"^zookeeper\.ssl\.{name} has no use without") as caught:
            BrokerConfig.single_node({**settings, f"{SSL}{name}": text})
        assert "secret" not in str(caught.value)
    BrokerConfig.single_node({f"{SSL}{name}": "TLSv1.2" if name == "protocol" else ""})


def test_acls_need_a_certificate_if_there_is_no_login(room: Room) -> None:
    room.settings["zookeeper.set.acl"] = "true"
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location"):
        room.config()
    room.set("keystore.location", "/k")
    room.config()
