"""A setting for protection that Odradek does not have keeps the broker from starting and cannot be set later."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.settings import AUTHORIZER, BROKER
from odradek.broker.settings.authorizers import CLASSES, AuthorizerValues
from odradek.broker.settings.config import BrokerConfig, ConfigError, load_config
from odradek.broker.settings.setting import MEDIUM, STRING, Setting, SettingValues
from odradek.broker.start_error import StartError
from odradek.protocol.errors import ErrorCode
from odradek.testing import in_process_broker
from tests.broker.controller.harness import BROKER_ID
from tests.broker.handlers.test_configs_handler import BROKER as BROKER_RESOURCE
from tests.broker.handlers.test_configs_handler import SET, client

ABOUT_SECURITY = ("ssl.", "sasl.", "zookeeper.ssl.", "password.encoder.", "delegation.token.secret", "security.p")
LOOSEN = {
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
}
"""These loosen a check. A Kafka broker without TLS ignores them, too."""
TUNE = {
    "sasl.kerberos.kinit.cmd": "/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "58",
    "sasl.kerberos.ticket.renew.jitter": "0.1",
    "sasl.kerberos.ticket.renew.window.factor": "0.7",
    "sasl.login.connect.timeout.ms": "58",
    "sasl.login.read.timeout.ms": "58",
    "sasl.login.refresh.buffer.seconds": "58",
    "sasl.login.refresh.min.period.seconds": "58",
    "sasl.login.refresh.window.factor": "0.7",
    "sasl.login.refresh.window.jitter": "0.1",
    "sasl.login.retry.backoff.max.ms": "58",
    "sasl.login.retry.backoff.ms": "58",
    "sasl.oauthbearer.assertion.algorithm": "ES256",
    "sasl.oauthbearer.assertion.claim.aud": "scp",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "58",
    "sasl.oauthbearer.assertion.claim.iss": "scp",
    "sasl.oauthbearer.assertion.claim.jti.include": "true",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "58",
    "sasl.oauthbearer.assertion.claim.sub": "scp",
    "sasl.oauthbearer.clock.skew.seconds": "58",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "58",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "58",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "58",
    "sasl.oauthbearer.scope": "scp",
    "sasl.oauthbearer.scope.claim.name": "scp",
    "sasl.oauthbearer.sub.claim.name": "scp",
    "ssl.protocol": "TLSv1.2",
    "password.encoder.cipher.algorithm": "AES/GCM/NoPadding",
    "password.encoder.iterations": "8192",
    "password.encoder.key.length": "256",
    "password.encoder.keyfactory.algorithm": "AES/GCM/NoPadding",
}
"""These only say when, how often or in which format a mechanism works. If it is not enabled, they promise nothing."""

REFUSED = {
    "authorizer.class.name": "com.example.Authorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "false",
    "ssl.client.auth": "required",
    "ssl.keystore.location": "/keys.jks",
    "ssl.keystore.password": "secret",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": "secret",
    "listener.name.x.ssl.keystore.location": "/keys.jks",
    "listener.name.x.sasl.jaas.config": "secret",
    "listener.name.x.plain.sasl.jaas.config": "secret",
    "listener.name.x.scram-sha-256.connections.max.reauth.ms": "1000",
    "security.providers": "a.Provider",
    "principal.builder.class": "a.Builder",
    "client.quota.callback.class": "a.Callback",
    "create.topic.policy.class.name": "a.Policy",
    "delegation.token.secret.key": "secret",
    "password.encoder.secret": "secret",
    "zookeeper.ssl.crl.enable": "true",
    "zookeeper.ssl.ocsp.enable": "true",
    "max.connection.creation.rate": "10",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_protection_setting_is_refused_by_name(name: str) -> None:
    config = BrokerConfig.from_mapping({name: REFUSED[name], "num.io.threads": "4"})
    with pytest.raises(ConfigError) as caught:
        config.check_protection()
    assert name in str(caught.value)
    assert "num.io.threads" not in str(caught.value)
    assert "secret" not in str(caught.value).replace(name, "")


def test_kafkas_defaults_and_empty_values_of_protection_settings_are_accepted() -> None:
    texts = {
        "authorizer.class.name": "",
        "super.users": "",
        "allow.everyone.if.no.acl.found": "true",
        "ssl.client.auth": "none",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.enabled.mechanisms": "GSSAPI",
        "zookeeper.connect": "localhost:2181",
        "zookeeper.set.acl": "false",
        "connection.failed.authentication.delay.ms": "50",
    }
    BrokerConfig.from_mapping(texts).check_protection()


def test_every_other_security_setting_without_effect_is_marked_as_protecting() -> None:
    for name, setting in {**BROKER, **AUTHORIZER}.items():
        if name.startswith(ABOUT_SECURITY) and not setting.takes_effect:
            assert setting.protects == (name not in LOOSEN | TUNE.keys()), name


def test_a_setting_that_tunes_a_missing_mechanism_is_accepted_with_a_warning() -> None:
    prefixed = {f"listener.name.x.{name}": text for name, text in TUNE.items() if name.startswith("sasl.")}
    config = BrokerConfig.from_mapping(TUNE | prefixed)
    config.check_protection()
    assert config.names_without_effect() == sorted(TUNE | prefixed)


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
async def test_a_setting_that_tunes_a_missing_mechanism_can_be_changed(prefix: str) -> None:
    name = f"{prefix}sasl.kerberos.min.time.before.relogin"
    ours = await client()
    answer = await ours.modify(BROKER_RESOURCE, str(BROKER_ID), [[name, SET, "58000"]])
    assert answer.error_code == ErrorCode.NONE
    assert ours.harness.config.given[name] == "58000"


def test_a_protection_setting_that_takes_effect_is_accepted() -> None:
    class Security(SettingValues):
        security_providers = Setting(STRING, None, MEDIUM, protects=True, doc="As in Kafka.")

    assert BROKER["security.providers"].promises_missing_protection("a.Provider")
    assert not Security.security_providers.promises_missing_protection("a.Provider")


def test_the_error_names_all_refused_settings_with_their_file_or_flag(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nprincipal.builder.class=a.B\nsecurity.providers=a.B\nssl.keystore.type=JKS\n")
    config = load_config(str(file), settings=["security.providers=a.C"])
    with pytest.raises(ConfigError) as caught:
        config.check_protection()
    message = str(caught.value)
    assert f"principal.builder.class ({file}), security.providers (--set)" in message
    assert "docs/security.md" in message
    assert "keystore" not in message
    assert "\n" not in message


@pytest.mark.parametrize("name", CLASSES)
def test_the_names_of_kafkas_authorizers_stand_for_ours(name: str) -> None:
    config = BrokerConfig.from_mapping(
        {"authorizer.class.name": name, "super.users": " User:admin; ;User:CN=a,O=b:c;", "num.io.threads": "4"}
    )
    config.check_protection()
    assert config.authorizer() == AuthorizerValues(frozenset({"User:admin", "User:CN=a,O=b:c"}), False)
    assert config.unknown_names() == []


@pytest.mark.parametrize(("text", "expected"), [(None, False), ("false", False), (" TRUE ", True)])
def test_everyone_is_allowed_without_acls_only_if_the_setting_says_so(text: str | None, expected: bool) -> None:
    given = {} if text is None else {"allow.everyone.if.no.acl.found": text}
    values = BrokerConfig.from_mapping({"authorizer.class.name": CLASSES[0], **given}).authorizer()
    assert values == AuthorizerValues(frozenset(), expected)


@pytest.mark.parametrize(
    ("name", "text"), [("super.users", "admin"), ("super.users", "User:a;b"), ("allow.everyone.if.no.acl.found", "1")]
)
def test_an_invalid_value_of_the_authorizer_is_refused(name: str, text: str) -> None:
    config = BrokerConfig.from_mapping({"authorizer.class.name": CLASSES[0], name: text})
    with pytest.raises(ConfigError, match=name):
        config.check_protection()


async def test_settings_of_the_authorizer_do_not_change_while_the_broker_runs() -> None:
    ours = await client()
    answer = await ours.modify(BROKER_RESOURCE, str(BROKER_ID), [["super.users", SET, "User:mallory"]])
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "super.users" not in ours.harness.config.given


async def test_a_broker_with_an_unsupported_protection_setting_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"authorizer\.class\.name"):
        async with in_process_broker({"authorizer.class.name": "a.B"}, data_dir=tmp_path / "data"):
            pass
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.plain.sasl.jaas.config",
        "listener.name.plaintext.sasl.jaas.config",
        "listener.name.plaintext.ssl.keystore.password",
        "listener.name.plaintext.plain.ssl.keystore.password",
        "my.plugin.sasl.jaas.config",
    ],
)
async def test_a_password_of_a_listener_is_not_stored(name: str) -> None:
    ours = await client()
    before = bytes(ours.harness.files.read_file("/data/metadata.journal"))
    answer = await ours.modify(BROKER_RESOURCE, str(BROKER_ID), [[name, SET, "secret"]])
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in answer.error_message
    assert "secret" not in answer.error_message
    assert ours.harness.files.read_file("/data/metadata.journal") == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.truststore.location", "/trust.jks"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("principal.builder.class", "a.Builder"),
        ("max.connection.creation.rate", "10"),
        ("super.users", "User:admin"),
    ],
)
async def test_changing_a_protection_setting_is_refused(name: str, value: str) -> None:
    ours = await client()
    answer = await ours.modify(BROKER_RESOURCE, str(BROKER_ID), [[name, SET, value]])
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in answer.error_message
    assert name not in ours.harness.config.given


def test_a_protection_setting_stored_by_an_older_release_is_ignored_and_logged() -> None:
    config = BrokerConfig.from_mapping({})
    with capture_logs() as lines:
        config.apply_dynamic({}, {"ssl.client.auth": "required", "message.max.bytes": "4000"})
    assert config.values["ssl.client.auth"] == "none"
    assert config.message_max_bytes == 4000
    assert [line["name"] for line in lines] == ["ssl.client.auth"]
