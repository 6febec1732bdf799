"""No secret of a broker is to be seen: in its log, its answers, its files, its arguments, whatever goes wrong."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.server import Broker
from odradek.broker.settings.config import ConfigError, load_config
from odradek.broker.start_error import StartError
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.client_properties import ClientSecurity, security_of_properties
from odradek.clients.admin.users import UserAdmin
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.storage.files import OsFiles
from tests.patience import until
from tests.scenarios.secret_markers import Markers
from tests.spawned_broker import SpawnedBroker, spawned_broker
from tests.tls_files import TlsFiles
from tests.zookeeper.certificates import PASSWORD

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PACKAGE = "org.apache.kafka.common.config.provider."
MARKERS = Markers("plain", "other", "scram", "set", "wrong", "altered", "text", "token", "key", "jaas", "store", "salt")
PREFIX = "listener.name.sasl_ssl."
JAAS = "listener_name_sasl__ssl_plain_sasl_jaas_config"
PASSWORDS = [
    "ssl.key.password",
    "ssl.keystore.key",
    "sasl.jaas.config",
    f"{PREFIX}ssl.key.password",
    f"{PREFIX}ssl.truststore.password",
    f"{PREFIX}plain.sasl.jaas.config",
    f"{PREFIX}scram-sha-256.sasl.jaas.config",
    "my.plugin.password",
]


def properties(directory: Path, **changed: str) -> dict[str, str]:
    """The settings of a broker whose secrets are files; `changed` has underscores for dots."""
    files = TlsFiles(directory)
    secrets = directory / "secrets"
    secrets.mkdir(exist_ok=True)
    key = files.write("encrypted.pem", files.broker.encrypted_pem())
    for name, secret in (("key", str(PASSWORD)), ("plain", MARKERS["plain"]), ("text", MARKERS["text"])):
        (secrets / name).write_text(secret)
    (secrets / "users.properties").write_text(f"other={MARKERS['other']}\n")
    (secrets / "scram").write_text(f"SCRAM-SHA-256=[name=carol,password={MARKERS['scram']}]\n")
    jaas = (
        f'{PLAIN} required user_alice="${{dir:{secrets}:plain}}" user_bob="${{file:{secrets}/users.properties:other}}";'
    )
    return {
        "broker.id": "0",
        "log.dirs": str(directory / "data"),
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "offsets.topic.replication.factor": "1",
        "ssl.keystore.location": key,
        "ssl.key.password": f"${{dir:{secrets}:key}}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{PREFIX}plain.sasl.jaas.config": jaas,
        "odradek.scram.credentials.file": str(secrets / "scram"),
        "metric.reporters": f"${{dir:{secrets}:text}}",
        "my.plugin.secret": f"${{dir:{secrets}:text}}",
        "config.providers": "dir,file",
        "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
        "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
        **{name.replace("__", "\0").replace("_", ".").replace("\0", "_"): text for name, text in changed.items()},
    }


def written(directory: Path, settings: dict[str, str]) -> Path:
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return file


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SpawnedBroker]:
    with spawned_broker(tmp_path / "data", config=written(tmp_path, properties(tmp_path)), with_metrics=True) as broker:
        yield broker


def security(directory: Path, user: str, password: str, mechanism: str = "PLAIN") -> ClientSecurity:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }
    return security_of_properties(settings, OsFiles(), {})


@pytest.fixture
async def admin(broker: SpawnedBroker, tmp_path: Path) -> AsyncIterator[AdminClient]:
    connect = security(tmp_path, "alice", MARKERS["plain"]).connect(SystemRandom())
    async with AdminClient(broker.bootstrap, connect=connect) as client:
        yield client


async def failure(attempt: Any) -> str:
    """What an attempt that must fail says."""
    with pytest.raises((ProtocolError, NetworkError)) as caught:
        await attempt
    return str(caught.value)


async def refused_logins(broker: SpawnedBroker, directory: Path) -> AsyncIterator[str]:
    for user, mechanism in (
        ("alice", "PLAIN"),
        ("nobody", "PLAIN"),
        ("carol", "SCRAM-SHA-256"),
        ("x", "SCRAM-SHA-256"),
    ):
        connect = security(directory, user, MARKERS["wrong"], mechanism).connect(SystemRandom())
        yield await failure(AdminClient(broker.bootstrap, connect=connect).describe_cluster())
    tls = security(directory, "alice", "").tls
    host, port = broker.bootstrap.split(":")
    token = MARKERS["token"].encode()
    for mechanism, rubbish in (
        ("PLAIN", token),
        ("PLAIN", b"\0" + token + b"\0" + token),
        ("PLAIN", b"\0alice\0" + token + b"\0" + token),
        ("SCRAM-SHA-256", token),
        ("SCRAM-SHA-256", b"n,,n=" + token + b",r="),
        ("SCRAM-MD5", token),
    ):
        async with await NetworkClient.connect(host, int(port), tls=tls) as client:
            yield str(await client.send(SaslHandshakeRequest(mechanism=mechanism), version=1))
            answer = client.send(SaslAuthenticateRequest(auth_bytes=rubbish), version=2)
            try:
                yield str(await answer)
            except NetworkError as error:
                yield str(error)


async def refused_changes(admin: AdminClient) -> AsyncIterator[str]:
    """Passwords, and a password in the wrong place, for one broker and for all; by both requests."""
    for name in PASSWORDS:
        for broker_id in ("0", ""):
            change = (name, ConfigOperation.SET, MARKERS["altered"])
            if name == "my.plugin.password":
                await admin.alter_configs(ConfigResourceType.BROKER, broker_id, [change], validate_only=True)
                continue
            yield await failure(admin.alter_configs(ConfigResourceType.BROKER, broker_id, [change]))
            resource = AlterConfigsRequest.AlterConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name=broker_id,
                configs=[AlterConfigsRequest.AlterableConfig(name=name, value=MARKERS["altered"])],
            )
            yield str(await admin.ask_broker(0, AlterConfigsRequest(resources=[resource])))
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="dave", mechanism=1, iterations=1, salt=MARKERS["salt"].encode(), salted_password=MARKERS["salt"].encode()
    )
    yield str(await admin.ask_controller(AlterUserScramCredentialsRequest(upsertions=[upsertion])))


async def descriptions(admin: AdminClient) -> AsyncIterator[str]:
    for kind, name in ((ConfigResourceType.BROKER, "0"), (ConfigResourceType.BROKER, "")):
        yield str([[one, *one.synonyms] for one in await admin.describe_configs(kind, name, documentation=True)])
    users = UserAdmin(admin, SystemRandom())
    yield str(await users.users())
    yield str(await admin.describe_cluster())
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="0", configuration_keys=[*PASSWORDS, "my.plugin.secret"]
    )
    yield str(await admin.ask_broker(0, DescribeConfigsRequest(resources=[asked], include_synonyms=True)))


def arguments_of(broker: SpawnedBroker) -> bytes:
    return Path(f"/proc/{broker.process.pid}/cmdline").read_bytes()


async def test_a_broker_shows_no_secret_whatever_clients_do(
    broker: SpawnedBroker, admin: AdminClient, tmp_path: Path
) -> None:
    debug = [("root", ConfigOperation.SET, "DEBUG")]
    await admin.alter_configs(ConfigResourceType.BROKER_LOGGER, "0", debug)
    users = UserAdmin(admin, SystemRandom())
    await users.set_password("dave", MARKERS["set"], "SCRAM-SHA-256", 4096)
    for user, password in (("carol", MARKERS["scram"]), ("dave", MARKERS["set"])):
        connect = security(tmp_path, user, password, "SCRAM-SHA-256").connect(SystemRandom())
        async with AdminClient(broker.bootstrap, connect=connect) as client:
            assert (await client.describe_cluster()).cluster_id

    answers = [each async for each in refused_logins(broker, tmp_path)]
    answers += [each async for each in refused_changes(admin)]
    answers += [each async for each in descriptions(admin)]
    assert [seen for each in answers for seen in MARKERS.within(each) if seen != "token"] == []
    assert any("INVALID_CONFIG" in each for each in answers)
    assert any("dave" in each for each in answers)

    await until(lambda: broker.log_text().count("authentication failed") >= 4)
    for line in broker.log_text().splitlines():
        assert MARKERS.within(line) == [], line
    assert str(PASSWORD) not in broker.log_text()
    assert "Traceback" not in broker.log_text()
    assert MARKERS.within(arguments_of(broker)) == []
    broker.terminate()
    assert MARKERS.within_files(tmp_path / "data") == []


Change = Callable[[Path], dict[str, str]]


def with_file(name: str, data: str, **settings: str) -> Change:
    """Settings that name a file with this content, as @."""

    def change(directory: Path) -> dict[str, str]:
        path = directory / name
        path.write_text(data)
        return properties(directory, **{key: text.replace("@", str(path)) for key, text in settings.items()})

    return change


def with_secret(name: str, **settings: str) -> Change:
    """Settings with a secret that a provider yields, as @."""
    return with_file("secret.properties", f"it={MARKERS[name]}\n", **{
        key: text.replace("@", "${file:@:it}") for key, text in settings.items()
    })  # fmt: skip


BROKEN = {
    "a wrong password of the key": with_secret("key", ssl_key_password="@"),
    "a wrong password of a store": with_secret(
        "store", ssl_truststore_password="@", ssl_truststore_location="/dev/null"
    ),
    "a password without a store": with_secret("store", ssl_truststore_password="@"),
    "a secret in place of a path": with_secret("key", ssl_keystore_location="@"),
    "a secret in place of a number": with_secret("key", num_partitions="@"),
    "a secret in place of a listener": with_secret("key", listeners="SASL_SSL://127.0.0.1:@"),
    "a secret in place of a mechanism": with_secret("key", sasl_enabled_mechanisms="PLAIN,@"),
    "a secret in place of a protocol": with_secret("key", ssl_enabled_protocols="TLSv1.3,@"),
    "a secret in place of a directory": with_secret("key", log_dirs="/proc/@"),
    "a secret in place of a file": with_secret("key", odradek_scram_credentials_file="/@/@"),
    "a secret in the wrong protection": with_secret("key", sasl_kerberos_service_name="@"),
    "a password that ends a text": with_secret("jaas", **{JAAS: 'x required a="@"b";'}),
    "a password that is not quoted": with_secret("jaas", **{JAAS: "x required p=@,;"}),
    "a login module of another mechanism": with_secret(
        "jaas", **{JAAS: f'{SCRAM} required user_a="@";'}
    ),
    "a broken JAAS file": with_file(
        "jaas.conf",
        f'KafkaServer {{ {PLAIN} required user_a="{MARKERS["jaas"]}" "{MARKERS["jaas"]}; }};',
        odradek_security_auth_login_config="@",
        **{JAAS: ""},
    ),
    "a broken line of SCRAM": with_file(
        "broken", f"SCRAM-SHA-256=[name=a,password={MARKERS['scram']}\n", odradek_scram_credentials_file="@"
    ),
    "an unknown mechanism of SCRAM": with_file(
        "broken", f"SCRAM-MD5=[name=a,password={MARKERS['scram']}]\n", odradek_scram_credentials_file="@"
    ),
    "a broken property file of secrets": with_file(
        "broken.properties", f"it={MARKERS['key']}\\u12\n", ssl_key_password="${file:@:it}"
    ),
    "a directory in place of a file of secrets": with_file("file", "", ssl_key_password="${file:/:it}"),
    "a key in the settings that does not decode": with_secret(
        "key", ssl_keystore_key="@", ssl_keystore_certificate_chain="@", ssl_keystore_location=""
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", BROKEN)
async def test_a_broker_that_cannot_start_says_why_and_shows_no_secret(problem: str, tmp_path: Path) -> None:
    file = written(tmp_path, BROKEN[problem](tmp_path))
    with capture_logs() as logs, pytest.raises((ConfigError, StartError)) as caught:
        await Broker(load_config(str(file))).start()
    shown = f"{''.join(traceback.format_exception(caught.value))} {logs}"
    assert MARKERS.within(shown) == []
    assert str(PASSWORD) not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    data = tmp_path / "data"
    assert not data.exists() or MARKERS.within_files(data) == []


def test_the_command_prints_one_line_without_a_secret(tmp_path: Path) -> None:
    file = written(tmp_path, BROKEN["a secret in place of a path"](tmp_path))
    command = [sys.executable, "-m", "odradek.cli", "serve", "--config", str(file)]
    ended = subprocess.run(
        command, env={**os.environ, "ODRADEK_DEBUG": "1"}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1] == "odradek: ssl.keystore.location=[hidden]: No such file or directory"
    assert "Traceback" not in ended.stderr
    assert MARKERS.within(ended.stderr) == []


def test_the_search_finds_a_secret_in_every_form() -> None:
    secret = MARKERS["plain"]
    forms = [secret, secret.encode().hex(), *(base64.b64encode(b"x" * n + secret.encode()).decode() for n in range(5))]
    assert [MARKERS.within(f"before {form} after") for form in forms] == [["plain"]] * len(forms)
    assert MARKERS.within(secret.encode("utf-16-le")) == ["plain"]
    assert MARKERS.within("Marker") == []
