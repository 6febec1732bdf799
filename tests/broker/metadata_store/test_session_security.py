"""How the session with ZooKeeper is secured, by the settings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.broker.background.background import Background
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import StoreUnavailable
from odradek.broker.metadata_store.zookeeper.session_security import session_security_of
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.security.digest_md5 import Credentials
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.start_error import StartError
from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker
from tests.memory_files import ForgetfulFiles
from tests.wire import requests
from tests.wire.api import api_of_a_broker
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import acls_of
from tests.zookeeper.wire import Acl

JAAS_FILE = "odradek.security.auth.login.config"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SECTION = f'Client {{\n  {MODULE} required username="kafka" password="secret";\n}};\n'


def secured(address: str, **more: str) -> BrokerConfig:
    settings = {"zookeeper.connect": address, JAAS_FILE: "/etc/jaas.conf"}
    return BrokerConfig.single_node({**settings, **{name.replace("_", "."): text for name, text in more.items()}})


def with_file(text: str | bytes) -> ForgetfulFiles:
    files = ForgetfulFiles()
    files.make_directories("/etc")
    files.replace_file("/etc/jaas.conf", text.encode() if isinstance(text, str) else text)
    return files


def model_with_login() -> ZooKeeperModel:
    model = ZooKeeperModel(tick_s=0.5)
    model.users, model.requires_login = {"kafka": "secret"}, True
    return model


async def test_a_broker_logs_in_as_its_jaas_file_says() -> None:
    background = Background()
    async with model_with_login().served() as address:
        for set_acl, acl in (
            ("false", [(31, "world", "anyone")]),
            ("true", [(31, "sasl", "kafka"), (1, "world", "anyone")]),
        ):
            config = secured(f"{address}/{set_acl}", zookeeper_set_acl=set_acl)
            store = metadata_store_of(config, with_file(SECTION), background, random.Random(1))
            assert isinstance(store, ZooKeeperStore)
            await store.open()
            await store.create("/brokers")
            assert await acls_of(store, "/brokers") == acl
            await store.close()
        config = secured(address, zookeeper_connection_timeout_ms="300")
        store = metadata_store_of(config, with_file(SECTION.replace("secret", "guess")), background, random.Random(1))
        with pytest.raises(StoreUnavailable, match="the login of kafka failed"):
            await store.open()
    await background.stop()


async def test_all_entries_of_a_broker_have_kafkas_acls(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(SECTION)
    model = model_with_login()
    own, readable = Acl(31, "sasl", "kafka"), Acl(1, "world", "anyone")
    async with model.served() as address:
        settings = {"zookeeper.connect": address, JAAS_FILE: str(tmp_path / "jaas.conf"), "zookeeper.set.acl": "true"}
        async with api_of_a_broker(settings) as api:
            (created,) = (await api(requests.create_topics("t", partitions=2), 5)).topics
            assert created.error_code == ErrorCode.NONE
            acls = dict(model.acls)
    assert {"/brokers/ids/0", "/controller", "/cluster/id", "/brokers/topics/t/partitions/1/state"} <= acls.keys()
    open_to_all = {path for path, found in acls.items() if found == [Acl(31, "world", "anyone")]}
    secret = {path for path, found in acls.items() if found == [own]}
    assert open_to_all == {"/consumers"}
    assert secret == {"/config/users", "/config/brokers"}
    assert {path for path, found in acls.items() if found == [own, readable]} == acls.keys() - open_to_all - secret


def test_other_sections_do_not_matter() -> None:
    other = 'KafkaServer {\n  a.B required username="other" password="other";\n};\n'
    security = session_security_of(secured("z"), with_file(other + SECTION))
    assert security.credentials == Credentials("kafka", "secret")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SECTION.replace("Client", "KafkaServer"), "/etc/jaas.conf: there is no section Client"),
        (SECTION.replace("required", "sometimes"), "/etc/jaas.conf:2: required, requisite"),
        (SECTION.replace(MODULE, "com.sun.security.auth.module.Krb5LoginModule"), "Krb5LoginModule; Odradek has only"),
        (SECTION.replace(";\n}", f"; {MODULE} required;\n}}"), "section Client has 2 login modules, not one"),
        ("Client { };", "section Client has 0 login modules, not one"),
        (SECTION.replace('password="secret"', ""), "section Client lacks the option password"),
        (SECTION.replace("username", "user").replace("password", "pass"), "lacks the option username and password"),
        (b"Client \xff", "the file is not UTF-8"),
    ],
)
def test_a_file_without_the_login_is_refused_by_name(text: str | bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        session_security_of(secured("z"), with_file(text))
    message = str(caught.value)
    assert message.startswith(JAAS_FILE)
    assert "/etc/jaas.conf" in message
    assert problem in message
    assert "secret" not in message


def test_a_missing_file_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=rf"^{JAAS_FILE}=/etc/jaas.conf: "):
        session_security_of(secured("z"), ForgetfulFiles())


async def test_a_broker_does_not_start_without_the_file_and_says_why() -> None:
    with pytest.raises(StartError, match=rf"^{JAAS_FILE}=/no/such.conf: No such file or directory$"):
        async with in_process_broker({"zookeeper.connect": "127.0.0.1:1", JAAS_FILE: "/no/such.conf"}):
            pass


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({JAAS_FILE: "/etc/jaas.conf"}, f"{JAAS_FILE} has no use without zookeeper.connect"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl has no use without zookeeper.connect"),
        ({"zookeeper.set.acl": "true", "zookeeper.connect": "z"}, f"zookeeper.set.acl=true needs a login.*{JAAS_FILE}"),
    ],
)
def test_protection_that_would_not_be_there_is_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        BrokerConfig.single_node(settings)


SASL_LISTENER = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "zookeeper.connect": "z",
    JAAS_FILE: "/etc/jaas.conf",
}


def test_a_file_for_listeners_alone_is_no_login_to_zookeeper() -> None:
    """As in Kafka."""
    files = with_file(SECTION.replace("Client", "KafkaServer"))
    assert session_security_of(BrokerConfig.from_mapping(SASL_LISTENER), files).credentials is None
    needs_login = BrokerConfig.from_mapping({**SASL_LISTENER, "zookeeper.set.acl": "true"})
    with pytest.raises(ConfigError, match="there is no section Client"):
        session_security_of(needs_login, files)
