"""Login, TLS and ACLs with a ZooKeeper of Apache's, which knows nothing of this project."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.processes import free_port
from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.broker.metadata_store.zookeeper.acls import kafkas_acls
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.files import OsFiles
from tests.patience import PATIENCE_S, until
from tests.zookeeper import real_zookeeper
from tests.zookeeper.certificates import PASSWORD, Authority
from tests.zookeeper.stores import acls_of, new_chroot

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
SECRET = 'Pa\\\\ss \\"wörd\\", x=y'
"""As it stands in a JAAS file, which Java reads, too."""
JAAS_FILE = "odradek.security.auth.login.config"
READABLE, OPEN = (1, "world", "anyone"), (31, "world", "anyone")


class Secured(NamedTuple):
    """The addresses of one server: with SASL, with TLS."""

    plain: str
    secure: str
    directory: Path

    def jaas(self, user: str, password: str) -> dict[str, str]:
        return login(self.directory, user, password)

    def tls(self, key: str | None) -> dict[str, str]:
        """`key`: a file that keytool has written, a `.jks` that holds PKCS12."""
        ssl = {
            "client.enable": "true",
            "truststore.location": str(self.directory / "trusted.jks"),
            "truststore.password": PASSWORD,
        }
        if key is not None:
            ssl |= {"keystore.location": str(self.directory / key), "keystore.password": PASSWORD}
        netty = {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty"}
        return netty | {f"zookeeper.ssl.{name}": text for name, text in ssl.items()}


def login(directory: Path, user: str, password: str) -> dict[str, str]:
    path = directory / f"{user}-{len(password)}.conf"
    path.write_text(f'Client {{\n {DIGEST} required\n  username="{user}" password="{password}";\n}};\n')
    return {JAAS_FILE: str(path)}


@pytest.fixture(scope="module")
def secured(kafka_control: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    plain, secure = free_port(), free_port()
    (directory / "server.conf").write_text(
        f'Server {{\n {DIGEST} required user_kafka="{SECRET}" user_other="other-secret";\n}};\n'
    )
    make_stores(directory)
    provider = "org.apache.zookeeper.server.auth"
    settings = {
        "clientPort": str(plain),
        "secureClientPort": str(secure),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.sasl": f"{provider}.SASLAuthenticationProvider",
        "authProvider.x509": f"{provider}.X509AuthenticationProvider",
        "ssl.keyStore.location": str(directory / "server.p12"),
        "ssl.keyStore.password": PASSWORD,
        "ssl.trustStore.location": str(directory / "authority.pem"),
    }
    options = f"-Djava.security.auth.login.config={directory / 'server.conf'}"
    with real_zookeeper.running_with(kafka_control, directory, settings, options):
        yield Secured(f"127.0.0.1:{plain}", f"127.0.0.1:{secure}", directory)


def make_stores(directory: Path) -> None:
    """The server's stores are made here, the broker's by Java's keytool."""
    authority = Authority()
    (directory / "authority.pem").write_bytes(authority.pem)
    (directory / "server.p12").write_bytes(authority.sign("zookeeper", "127.0.0.1").pkcs12())
    (directory / "broker.p12").write_bytes(authority.sign("kafka-broker").pkcs12())
    target = ("-storetype", "PKCS12", "-storepass", PASSWORD)
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", str(directory / "authority.pem")),
        *("-keystore", str(directory / "trusted.jks"), *target),
    )
    keytool(
        *("-importkeystore", "-srckeystore", str(directory / "broker.p12"), "-srcstorepass", PASSWORD),
        *("-destkeystore", str(directory / "broker.jks"), "-deststoretype", "PKCS12", "-deststorepass", PASSWORD),
    )


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=PATIENCE_S)


class Stores:
    """Opens stores by their settings, and closes them after the test."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = str(log_dir)
        self._background = Background()
        self._opened: list[ZooKeeperStore] = []

    async def open(self, connect: str, settings: dict[str, str]) -> ZooKeeperStore:
        of_test = {"zookeeper.connect": connect, "log.dirs": self._log_dir, "zookeeper.connection.timeout.ms": "20000"}
        config = BrokerConfig.single_node(of_test | settings)
        store = metadata_store_of(config, OsFiles(), self._background, random.Random(1))
        assert isinstance(store, ZooKeeperStore)
        await store.open()
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        await self._background.stop()


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    await stores.close()


SET_ACL = {"zookeeper.set.acl": "true"}


async def test_a_login_by_digest_md5_and_kafkas_acls(secured: Secured, stores: Stores) -> None:
    chroot = new_chroot()
    broker = await stores.open(secured.plain + chroot, secured.jaas("kafka", SECRET) | SET_ACL)
    await make_persistent_entries(broker)
    await broker.create("/config/users/alice", b"a secret")
    own = (31, "sasl", "kafka")
    for path in ("/", "/brokers/ids", "/config/topics"):
        assert await acls_of(broker, path) == [own, READABLE]
    assert await acls_of(broker, "/config/users/alice") == [own]
    assert await acls_of(broker, "/consumers") == [OPEN]

    other = await stores.open(secured.plain + chroot, secured.jaas("other", "other-secret"))
    assert (await other.get("/brokers/ids")).version == 0
    for refused in (other.get("/config/users/alice"), other.create("/brokers/ids/7"), other.set("/brokers/ids", b"")):
        with pytest.raises(StoreUnavailable, match="NoAuth"):
            await refused
    await other.create("/consumers/one")
    await broker.set("/config/users/alice", b"another")


@pytest.mark.parametrize(("user", "password"), [("kafka", "guess"), ("nobody", "guess")])
async def test_a_wrong_login_ends_the_start(secured: Secured, stores: Stores, user: str, password: str) -> None:
    settings = secured.jaas(user, password) | {"zookeeper.connection.timeout.ms": "1500"}
    with pytest.raises(StoreUnavailable, match=rf"the login of {user} failed: ZooKeeper does not accept the login"):
        await stores.open(secured.plain, settings)


async def test_tls_with_certificates_of_both_sides_and_acls_by_them(secured: Secured, stores: Stores) -> None:
    chroot = new_chroot()
    broker = await stores.open(secured.secure + chroot, secured.tls("broker.jks") | SET_ACL)
    await make_persistent_entries(broker)
    await broker.create("/brokers/ids/1", bytes(500_000), ephemeral=True)
    assert len((await broker.get("/brokers/ids/1")).data or b"") == 500_000
    own = (31, "x509", "CN=kafka-broker")
    assert await acls_of(broker, "/brokers/ids") == [own, READABLE]
    assert await acls_of(broker, "/config/brokers") == [own]

    other = await stores.open(secured.plain + chroot, secured.jaas("other", "other-secret"))
    with pytest.raises(StoreUnavailable, match="NoAuth"):
        await other.set("/brokers/ids", b"")


async def test_a_broker_without_a_certificate_is_refused(secured: Secured, stores: Stores) -> None:
    settings = secured.tls(None) | {"zookeeper.connection.timeout.ms": "1500"}
    with pytest.raises(StoreUnavailable, match=secured.secure):
        await stores.open(secured.secure, settings)


async def test_login_and_tls_together(secured: Secured, stores: Stores) -> None:
    settings = secured.tls("broker.jks") | secured.jaas("kafka", SECRET) | SET_ACL
    broker = await stores.open(secured.secure + new_chroot(), settings)
    await broker.create("/brokers")
    found = await acls_of(broker, "/brokers")
    assert READABLE in found
    assert {(31, "sasl", "kafka"), (31, "x509", "CN=kafka-broker")} == set(found) - {READABLE}
    assert broker.session_metrics.logins == 1


async def test_kafka_gives_its_entries_the_same_acls(
    secured: Secured, stores: Stores, kafka_control: list[str], tmp_path: Path
) -> None:
    """A broker of Kafka's, on the same server as the same user."""
    connect, settings = secured.plain + new_chroot(), secured.jaas("kafka", SECRET)
    with kafka_broker(kafka_control, tmp_path, connect, settings[JAAS_FILE]):
        store = await stores.open(connect, settings)
        found = {path: await acls_of(store, path) for path in await paths_below(store, "/")}
    assert {"/brokers/ids/1", "/config/users", "/controller", "/cluster/id", "/feature"} <= found.keys()
    ours = {path: [(each.perms, *each.id) for each in kafkas_acls(path)] for path in found}
    who = {("auth", ""): ("sasl", "kafka")}
    assert found == {
        path: [(perms, *who.get((scheme, name), (scheme, name))) for perms, scheme, name in acls]
        for path, acls in ours.items()
    }


@contextlib.contextmanager
def kafka_broker(control: list[str], directory: Path, connect: str, jaas_file: str) -> Iterator[None]:
    options = f"{real_zookeeper.SMALL_JVM} -Djava.security.auth.login.config={jaas_file}".replace("256m", "400m")
    start = [*control, "zk-broker", "1", str(free_port()), connect, str(directory), "zookeeper.set.acl=true"]
    subprocess.run(start, check=True, timeout=120, env={**os.environ, "KOPTS": options}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run([*control, "stop", str(directory)], check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)


async def paths_below(store: ZooKeeperStore, path: str) -> list[str]:
    names = await store.children(path)
    below = [await paths_below(store, f"{path.rstrip('/')}/{name}") for name in names]
    return [path, *(each for paths in below for each in paths)]


async def test_a_session_goes_on_after_the_password_was_wrong_for_a_while(
    stores: Stores, kafka_control: list[str], tmp_path: Path
) -> None:
    """The server is restarted with another password, and again with the right one."""
    port = free_port()
    settings = {
        "clientPort": str(port),
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }

    @contextlib.contextmanager
    def server(password: str) -> Iterator[None]:
        (tmp_path / "server.conf").write_text(f'Server {{ {DIGEST} required user_kafka="{password}"; }};\n')
        options = f"-Djava.security.auth.login.config={tmp_path / 'server.conf'}"
        with real_zookeeper.running_with(kafka_control, tmp_path, settings, options):
            yield

    with server("secret"):
        store = await stores.open(
            f"127.0.0.1:{port}", login(tmp_path, "kafka", "secret") | {"zookeeper.session.timeout.ms": "40000"}
        )
        await store.create("/live", ephemeral=True)
        session, metrics = store.session_id, store.session_metrics
    with server("another"):
        await until(lambda: metrics.failed_logins >= 3)
        assert metrics.state == "AUTH_FAILED"
    with server("secret"):
        await store.connected()
        assert (store.session_id, store.session_epoch) == (session, 1)
        assert (await store.get("/live")).owner == session
        assert metrics.expirations == 0
