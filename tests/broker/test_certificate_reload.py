"""Keys and certificates that are replaced while a broker runs: by AlterConfigs, and because their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from odradek.broker.server import Broker
from odradek.broker.start_error import StartError
from odradek.clients.admin.client_properties import security_of_properties
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NetworkError, NodeUnreachable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.storage.files import OsFiles
from odradek.testing import in_process_broker
from tests.broker.metrics.test_metrics import ask, samples_of, value
from tests.patience import until
from tests.tls_files import NAMES, TlsFiles
from tests.zookeeper.brokers import brokers_on_zookeeper
from tests.zookeeper.certificates import Authority, Signed

LOCATION = "listener.name.ssl.ssl.keystore.location"
TRUSTED = "listener.name.ssl.ssl.truststore.location"
REFUSED = "certificates not replaced"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


async def connect(broker: Broker, properties: dict[str, str]) -> NetworkClient:
    tls = security_of_properties(properties, OsFiles(), {}).tls
    return await NetworkClient.connect("127.0.0.1", broker.endpoints[-1].port, tls=tls)


def shown_to(client: NetworkClient) -> int:
    """The serial number of the certificate that the broker has shown."""
    assert client._transport is not None
    return int(client._transport.get_extra_info("peercert")["serialNumber"], 16)


async def shown(broker: Broker, files: TlsFiles, key: Signed | None = None) -> int:
    """What a new connection is shown."""
    async with await connect(broker, files.client(key)) as client:
        return shown_to(client)


async def modify(client: NetworkClient, broker: Broker, name: str, value: str, **options: Any) -> tuple[int, str]:
    """Sets one setting of the broker by IncrementalAlterConfigs. Returns error code and message."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=name, config_operation=ConfigOperation.SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(broker.broker_id), configs=[config]
    )
    response = await client.send(IncrementalAlterConfigsRequest(resources=[resource], **options))
    (answer,) = response.responses
    return ErrorCode.of(answer.error_code), answer.error_message or ""


async def replace_all(client: NetworkClient, broker: Broker, settings: dict[str, str]) -> int:
    """Sets the settings of the broker by AlterConfigs. Returns the error code."""
    configs = [AlterConfigsRequest.AlterableConfig(name=name, value=value) for name, value in settings.items()]
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(broker.broker_id), configs=configs
    )
    response = await client.send(AlterConfigsRequest(resources=[resource]))
    return ErrorCode.of(response.responses[0].error_code)


def serial(signed: Signed) -> int:
    return signed.certificate.serial_number


def renewed(files: TlsFiles, name: str = "broker", names: tuple[str, ...] = NAMES) -> Signed:
    """Writes a new certificate where the listener's is."""
    new = files.authority.sign(name, *names)
    files.write("broker.pem", new.pem)
    return new


async def test_a_changed_file_is_used_for_new_connections_and_the_old_ones_live_on(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker, await connect(broker, files.client()) as old:
        new = renewed(files)
        assert await shown(broker, files) == serial(files.broker)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)
        assert await old.send(ApiVersionsRequest())
        assert shown_to(old) == serial(files.broker)


async def test_a_file_that_another_one_replaces_is_noticed_whatever_its_size_and_time(files: TlsFiles) -> None:
    """As a volume of Kubernetes: the path is a link to a directory that is exchanged."""
    old, new = files.directory / "old", files.directory / "new"
    signed = files.authority.sign("broker", *NAMES)
    for directory, key in ((old, files.broker), (new, signed)):
        directory.mkdir()
        (directory / "broker.pem").write_bytes(key.pem)
    link = files.directory / "current"
    link.symlink_to(old)
    settings = files.listener() | {"ssl.keystore.location": str(link / "broker.pem")}
    async with in_process_broker(settings) as broker:
        link.unlink()
        link.symlink_to(new)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(signed)


async def test_the_job_is_one_of_the_periodic_ones_only_with_tls(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker:
        assert "certificates" in [name for _, _, name, _ in broker.periodic_work.table()]
    async with in_process_broker() as broker:
        assert "certificates" not in [name for _, _, name, _ in broker.periodic_work.table()]


async def test_the_same_path_again_reloads_the_file(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker, await connect(broker, files.client()) as client:
        assert await modify(client, broker, LOCATION, files.key) == (ErrorCode.NONE, "")
        for change in (modify(client, broker, LOCATION, files.key), replace_all(client, broker, {LOCATION: files.key})):
            new = renewed(files)
            await change
            assert await shown(broker, files) == serial(new)


async def test_any_change_of_this_brokers_settings_reloads_changed_files_as_in_kafka(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker, await connect(broker, files.client()) as client:
        new = renewed(files)
        assert await modify(client, broker, "log.cleaner.threads", "2", validate_only=True) == (ErrorCode.NONE, "")
        assert await shown(broker, files) == serial(files.broker)
        assert await modify(client, broker, "log.cleaner.threads", "2") == (ErrorCode.NONE, "")
        assert await shown(broker, files) == serial(new)


async def test_another_path_is_used_at_once_and_after_a_restart(files: TlsFiles, tmp_path: Path) -> None:
    other = files.authority.sign("broker", *NAMES)
    path = files.write("other.pem", other.pem)
    async with in_process_broker(files.listener(), data_dir=tmp_path / "data") as broker:
        async with await connect(broker, files.client()) as client:
            assert await modify(client, broker, "listener.name.ssl.ssl.keystore.type", "PEM") == (ErrorCode.NONE, "")
            assert await modify(client, broker, LOCATION, path) == (ErrorCode.NONE, "")
        assert await shown(broker, files) == serial(other)
    OsFiles().remove(files.key)
    async with in_process_broker(files.listener(), data_dir=tmp_path / "data") as broker:
        assert await shown(broker, files) == serial(other)
    OsFiles().remove(path)
    with pytest.raises(StartError, match=f"{LOCATION}={path}: No such file or directory"):
        async with in_process_broker(files.listener(), data_dir=tmp_path / "data"):
            pass


def garbage(files: TlsFiles) -> bytes:
    return b"garbage"


def other_key(files: TlsFiles) -> bytes:
    """The key of one certificate with another certificate."""
    return files.authority.sign("broker", *NAMES).key_pem + files.broker.chain_pem


def other_name(files: TlsFiles) -> bytes:
    return files.authority.sign("another", *NAMES).pem


def fewer_names(files: TlsFiles) -> bytes:
    return files.authority.sign("broker", "localhost", "third.example.com").pem


UNUSABLE: list[tuple[Callable[[TlsFiles], bytes], str]] = [
    (garbage, "the file is neither PEM nor PKCS12"),
    (other_key, "contains no private key with its certificate"),
    (other_name, "the new certificate is of CN=another instead of CN=broker; ssl.allow.dn.changes allows others"),
    (fewer_names, "the new certificate lacks IP:127.0.0.1; ssl.allow.san.changes allows that"),
]


@pytest.mark.parametrize(("content", "problem"), UNUSABLE)
async def test_a_file_that_cannot_be_used_leaves_the_old_certificate_and_is_logged_once(
    files: TlsFiles, content: Callable[[TlsFiles], bytes], problem: str
) -> None:
    async with in_process_broker(files.listener()) as broker, await connect(broker, files.client()) as client:
        files.write("broker.pem", content(files))
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                await broker.periodic_work.follow_certificates()
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [(REFUSED, "error")]
        assert problem in logs[0]["reason"]
        for options in ({"validate_only": True}, {}):
            with structlog.testing.capture_logs() as logs:
                code, message = await modify(client, broker, LOCATION, files.key, **options)
            assert code == ErrorCode.INVALID_REQUEST
            assert problem in message
            assert REFUSED in [entry["event"] for entry in logs]
        assert LOCATION not in broker.config.given
        assert await shown(broker, files) == serial(files.broker)
        new = renewed(files)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)


@pytest.mark.parametrize(
    ("content", "allowed"), [(other_name, "ssl.allow.dn.changes"), (fewer_names, "ssl.allow.san.changes")]
)
@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
async def test_other_names_may_be_allowed(
    files: TlsFiles, content: Callable[[TlsFiles], bytes], allowed: str, prefix: str
) -> None:
    async with in_process_broker(files.listener() | {f"{prefix}{allowed}": "true"}) as broker:
        files.write("broker.pem", content(files))
        certificates = broker.broker_security.certificates
        assert certificates is not None
        before = certificates.to_brokers
        await broker.periodic_work.follow_certificates()
        assert certificates.to_brokers is not before
        assert certificates.listeners["SSL"].context is not before


async def test_more_names_than_before_are_allowed(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker:
        new = renewed(files, "BROKER", (*NAMES, "another.example.com"))
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)


async def test_a_file_that_vanishes_and_comes_back_is_reloaded(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker:
        OsFiles().remove(files.key)
        with structlog.testing.capture_logs() as logs:
            await broker.periodic_work.follow_certificates()
        assert logs[0]["reason"].endswith("No such file or directory")
        assert await shown(broker, files) == serial(files.broker)
        new = renewed(files)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)


async def test_a_changed_trust_store_decides_on_new_clients(files: TlsFiles) -> None:
    other = Authority("Other")
    alice, bob = files.authority.sign("alice"), other.sign("bob")
    async with in_process_broker(files.listener("required")) as broker:
        with pytest.raises(NetworkError):
            await connect(broker, files.client(bob))
        files.write("authority.pem", files.authority.pem + other.pem)
        await broker.periodic_work.follow_certificates()
        for key in (alice, bob):
            assert await shown(broker, files, key) == serial(files.broker)
        both = files.write("both.pem", other.pem)
        async with await connect(broker, files.client(alice)) as client:
            code, message = await modify(client, broker, TRUSTED, both)
            assert code == ErrorCode.INVALID_REQUEST, "the broker itself would not be trusted"
            assert "do not agree" in message


async def test_a_trust_store_cannot_be_added(files: TlsFiles) -> None:
    settings = files.listener()
    del settings["ssl.truststore.location"]
    async with in_process_broker(settings) as broker, await connect(broker, files.client()) as client:
        code, message = await modify(client, broker, TRUSTED, files.trusted)
        assert code == ErrorCode.INVALID_REQUEST
        assert message == f"{TRUSTED} cannot be added to a listener that has had no trust store"


async def test_brokers_that_would_not_trust_each_other_are_not_made(files: TlsFiles) -> None:
    """The authority is exchanged in three steps."""
    other = Authority("Other")
    new = other.sign("broker", *NAMES)
    async with in_process_broker(files.listener()) as broker:
        with structlog.testing.capture_logs() as logs:
            files.write("broker.pem", new.pem)
            await broker.periodic_work.follow_certificates()
        assert "brokers with the old certificate and with the new one do not agree" in logs[0]["reason"]
        assert await shown(broker, files) == serial(files.broker)
        files.write("authority.pem", files.authority.pem + other.pem)
        files.write("broker.pem", files.broker.pem)
        await broker.periodic_work.follow_certificates()
        files.write("broker.pem", new.pem)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)


async def test_a_listener_that_is_not_between_brokers_may_have_another_authority(files: TlsFiles) -> None:
    other = Authority("Other")
    new = other.sign("broker", *NAMES)
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **files.stores()}
    async with in_process_broker(settings) as broker:
        files.write("broker.pem", new.pem)
        await broker.periodic_work.follow_certificates()
        trusts_both = files.write("both.pem", files.authority.pem + other.pem)
        async with await connect(broker, files.client() | {"ssl.truststore.location": trusts_both}) as client:
            assert shown_to(client) == serial(new)


async def test_a_certificate_that_has_expired_can_be_replaced(files: TlsFiles) -> None:
    """In Kafka, brokers that no longer trust the old one cannot get a new one."""
    files.write("broker.pem", files.authority.sign("broker", *NAMES, expired=True).pem)
    async with in_process_broker(files.listener()) as broker:
        with pytest.raises(NodeUnreachable, match="certificate has expired"):
            await connect(broker, files.client())
        new = renewed(files)
        await broker.periodic_work.follow_certificates()
        assert await shown(broker, files) == serial(new)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("ssl.keystore.location", "/x.pem", ErrorCode.INVALID_REQUEST),
        ("ssl.keystore.type", "PEM", ErrorCode.INVALID_REQUEST),
        (LOCATION, "/no/such/file", ErrorCode.INVALID_REQUEST),
        ("listener.name.ssl.ssl.keystore.type", "PKCS12", ErrorCode.INVALID_REQUEST),
        ("listener.name.ssl.ssl.keystore.password", "secret", ErrorCode.INVALID_CONFIG),
        ("listener.name.ssl.ssl.keystore.key", "secret", ErrorCode.INVALID_CONFIG),
        ("listener.name.ssl.ssl.truststore.certificates", "secret", ErrorCode.INVALID_CONFIG),
        ("listener.name.ssl.ssl.client.auth", "none", ErrorCode.INVALID_CONFIG),
        ("listener.name.ssl.ssl.allow.dn.changes", "true", ErrorCode.INVALID_CONFIG),
        ("ssl.allow.dn.changes", "true", ErrorCode.INVALID_REQUEST),
        ("listener.name.nobody.ssl.keystore.location", "/x.pem", ErrorCode.INVALID_CONFIG),
        ("listener.name.plaintext.ssl.keystore.location", "/x.pem", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_other_settings_of_tls_stay_as_they_were_at_the_start(
    files: TlsFiles, name: str, value: str, code: ErrorCode
) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **files.stores()}
    async with in_process_broker(settings) as broker, await connect(broker, files.client()) as client:
        answered, message = await modify(client, broker, name, value)
        assert answered == code, message
        assert "secret" not in message
        assert broker.config.given.get(name) == settings.get(name)


async def test_what_a_thread_has_read_does_not_undo_a_later_change(files: TlsFiles) -> None:
    async with in_process_broker(files.listener()) as broker:
        certificates = broker.broker_security.certificates
        assert certificates is not None
        renewed(files)
        reading = asyncio.Event()

        async def slow(read: Callable[[], Any]) -> Any:
            found = read()
            await reading.wait()
            return found

        following = asyncio.ensure_future(certificates.follow(slow))
        await asyncio.sleep(0)
        newest = renewed(files)
        certificates.reload()
        reading.set()
        await following
        assert await shown(broker, files) == serial(newest)


async def test_brokers_show_each_other_new_certificates(files: TlsFiles, tmp_path: Path) -> None:
    settings = {name.replace(".", "_"): text for name, text in files.listener("required").items()}
    async with brokers_on_zookeeper(tmp_path, 2, **settings) as brokers:
        new = renewed(files)
        controller, other = brokers.all
        for broker in brokers.all:
            await broker.periodic_work.follow_certificates()
        before = other.authentications["SSL"].successful
        for connection in list(other.socket_server.connections):
            connection.cut_off()
        await brokers.create("t", 1, 2)
        await until(lambda: other.authentications["SSL"].successful > before)
        certificates = controller.broker_security.certificates
        assert certificates is not None
        assert certificates.to_brokers is not None
        client = await NetworkClient.connect("127.0.0.1", other.endpoints[0].port, tls=certificates.to_brokers)
        async with client:
            assert shown_to(client) == serial(new)
            shown_by_us = [each.info.principal for each in other.socket_server.connections]
            assert set(shown_by_us) == {"User:CN=broker"}


async def test_handshakes_are_counted_by_listener(files: TlsFiles) -> None:
    async with in_process_broker(files.listener("required"), odradek_metrics_port=0) as broker:
        async with await connect(broker, files.client(files.authority.sign("alice"))):
            pass
        for _ in range(2):
            with pytest.raises(NetworkError):
                await connect(broker, files.client())
        await until(lambda: broker.authentications["SSL"].failed == 2)
        assert broker.metrics_server is not None
        _, _, text = await ask(broker.metrics_server.port)
        prefix, samples = "kafka_server_socket_server_metrics", samples_of(text)
        for name, count in (
            ("successful_authentication", 1),
            ("failed_authentication", 2),
            ("successful_reauthentication", 0),
            ("failed_reauthentication", 0),
        ):
            assert value(samples, f"{prefix}_{name}_total", listener="SSL") == count
