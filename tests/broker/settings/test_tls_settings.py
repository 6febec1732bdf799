"""The settings of TLS of single listeners, before any file is read."""

from __future__ import annotations

import pytest

from odradek.broker.settings.config import BrokerConfig, ConfigError

KEY = {"ssl.keystore.location": "/key.pem"}
SSL = {"listeners": "SSL://:9093", "security.inter.broker.protocol": "SSL"}
TWO = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093,INSIDE://:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL,INSIDE:SSL",
}


def config_of(*settings: dict[str, str]) -> BrokerConfig:
    config = BrokerConfig.from_mapping({name: text for each in settings for name, text in each.items()})
    config.check_protection()
    return config


def problem_of(*settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(*settings)
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_a_listener_may_use_ssl() -> None:
    config = config_of(SSL, KEY)
    assert [listener.uses_tls for listener in config.listeners] == [True]
    assert config.names_without_effect() == []


def test_each_listener_has_its_own_values() -> None:
    own = {"listener.name.outside.ssl.client.auth": "required", "listener.name.outside.ssl.keystore.location": "/o.pem"}
    config = config_of(TWO, KEY, own)
    outside, inside = (config.tls_of(listener) for listener in config.listeners[1:])
    assert (outside.client_auth, inside.client_auth) == ("required", "none")
    location = BrokerConfig.ssl_keystore_location
    assert (outside.value(location), inside.value(location)) == ("/o.pem", "/key.pem")
    assert outside.name(location) == "listener.name.outside.ssl.keystore.location"
    assert config.names_without_effect() == []


def test_a_listener_of_sasl_ssl_has_client_auth_only_with_its_prefix() -> None:
    config = config_of(TWO, KEY, {"ssl.client.auth": "required"})
    listener = config.listeners[1]._replace(security_protocol="SASL_SSL")
    assert config.tls_of(listener).client_auth == "none"
    config = config_of(TWO, KEY, {"listener.name.outside.ssl.client.auth": "requested"})
    assert config.tls_of(listener).client_auth == "requested"


def test_the_type_of_a_store_is_that_of_its_content_unless_it_is_set() -> None:
    (listener,) = config_of(SSL, KEY).listeners
    setting = BrokerConfig.ssl_keystore_type
    assert config_of(SSL, KEY).tls_of(listener).store_type(setting) is None
    assert config_of(SSL, KEY, {"ssl.keystore.type": "pem"}).tls_of(listener).store_type(setting) == "PEM"


def test_a_listener_without_a_key_is_refused() -> None:
    assert problem_of(SSL).startswith("listener SSL uses SSL and has no key: set ssl.keystore.location")
    assert "listener INSIDE" in problem_of(TWO, {"listener.name.outside.ssl.keystore.location": "/key.pem"})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ssl.keystore.key": "secret"}, "ssl.keystore.key needs ssl.keystore.certificate.chain"),
        ({"ssl.keystore.certificate.chain": "secret"}, "ssl.keystore.certificate.chain needs ssl.keystore.key"),
        (
            {**KEY, "ssl.keystore.key": "secret", "ssl.keystore.certificate.chain": "secret"},
            "ssl.keystore.key and ssl.keystore.location cannot both be set",
        ),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.type": "JKS"},
            "ssl.keystore.type=JKS: ssl.keystore.key is always PEM",
        ),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c", "ssl.keystore.password": "secret"},
            "ssl.keystore.password has no use without ssl.keystore.location",
        ),
        (
            {**KEY, "ssl.keystore.type": "PEM", "ssl.keystore.password": "secret"},
            "ssl.keystore.password has no use: a store of type PEM has no password",
        ),
        (
            {**KEY, "ssl.truststore.location": "/t", "ssl.truststore.certificates": "secret"},
            "ssl.truststore.certificates and ssl.truststore.location cannot both be set",
        ),
        (
            {**KEY, "ssl.truststore.password": "secret"},
            "ssl.truststore.password has no use without ssl.truststore.location",
        ),
        ({**KEY, "ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS is not one of JKS, PKCS12, PEM"),
        ({**KEY, "ssl.client.auth": "maybe"}, "ssl.client.auth=maybe is not one of required, requested, none"),
        ({**KEY, "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols names TLSv1.1"),
        (
            {**KEY, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "ssl.cipher.suites names only some suites of TLSv1.3, which cannot be restricted",
        ),
        ({**KEY, "ssl.cipher.suites": "TLS_NONE"}, "ssl.cipher.suites names the cipher suite TLS_NONE"),
        ({**KEY, "ssl.principal.mapping.rules": "RULE:a/b"}, "ssl.principal.mapping.rules: this is not DEFAULT"),
        (
            {**KEY, "ssl.endpoint.identification.algorithm": "LDAPS"},
            "ssl.endpoint.identification.algorithm=LDAPS is neither https nor empty",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], problem: str) -> None:
    assert problem_of(SSL, settings).startswith(problem)


def test_a_wrong_value_of_a_listener_is_named_with_its_prefix() -> None:
    name = "listener.name.outside.ssl.enabled.protocols"
    assert problem_of(TWO, KEY, {name: "SSLv3"}).startswith(f"{name} names SSLv3")


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.keystore.location": "/key.pem"},
        {"ssl.client.auth": "required"},
        {"listener.name.plaintext.ssl.client.auth": "required"},
        {"listener.name.nobody.ssl.keystore.key": "secret"},
    ],
)
def test_a_promise_of_tls_that_no_listener_keeps_is_refused(settings: dict[str, str]) -> None:
    (name,) = settings
    assert problem_of({"listeners": "PLAINTEXT://:9092"}, settings).startswith(
        f"No listener with TLS uses these settings: {name}."
    )
    if name.startswith("listener."):
        assert name in problem_of(TWO, KEY, settings)


@pytest.mark.parametrize("name", ["ssl.client.auth", "ssl.principal.mapping.rules"])
def test_a_setting_that_sasl_ssl_does_not_use_is_refused(name: str) -> None:
    value = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/"}[name]
    with_sasl = {
        "listeners": "PLAINTEXT://:9092,OUTSIDE://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    assert f"uses these settings: {name}." in problem_of(with_sasl, KEY, {name: value})
    config_of(TWO, KEY, {name: value})
    prefixed = f"listener.name.outside.{name}"
    if name == "ssl.client.auth":
        config_of(with_sasl, KEY, {prefixed: value})
    else:
        assert prefixed in problem_of(with_sasl, KEY, {prefixed: value})


@pytest.mark.parametrize(
    "name", ["ssl.engine.factory.class", "ssl.secure.random.implementation", "ssl.provider", "ssl.keymanager.algorithm"]
)
def test_what_only_java_has_is_refused_by_name(name: str) -> None:
    assert name in problem_of(SSL, KEY, {name: "a.B"})
    assert f"listener.name.ssl.{name}" in problem_of(SSL, KEY, {f"listener.name.ssl.{name}": "a.B"})


@pytest.mark.parametrize("protocol", ["TLS", "TLSv1.2", "TLSv1.3"])
def test_the_protocol_of_javas_contexts_is_accepted(protocol: str) -> None:
    config_of(SSL, KEY, {"ssl.protocol": protocol})
