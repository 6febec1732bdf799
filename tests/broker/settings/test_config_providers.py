"""Variables in settings. What they become, and the errors, was asked of Kafka 3.9.1's `AbstractConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.settings import ConfigError
from odradek.broker.settings.config import BrokerConfig, load_config
from odradek.broker.settings.config_description import describe_broker_setting
from odradek.broker.settings.config_providers import PACKAGE, resolve
from odradek.storage.files import OsFiles

ENVIRONMENT = {"A": "alpha", "B": "b$1\\n", "INDIRECT": "${env:A}", "SECRET": "Marker-17"}
PROVIDERS = {
    "config.providers": "env,file,dir",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}
FILES = OsFiles()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "s.properties").write_bytes(b"k = v alue \\\n  more\numlaut=\xc3\xbc\nref=${env:A}\n")
    directory = tmp_path / "d"
    (directory / "sub").mkdir(parents=True)
    (directory / "f").write_text("content\n")
    (directory / "link").symlink_to("../s.properties")
    return tmp_path


def resolved(text: str, place: Path, more: Mapping[str, str] | None = None) -> str:
    settings = {**PROVIDERS, **(more or {}), "x": text.replace("@", str(place))}
    return resolve(settings, FILES, ENVIRONMENT).texts["x"].replace(str(place), "@")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:A}", "alpha"),
        ("x${env:A}y${env:B}z", "xalphayb$1\\nz"),
        (" ${env:A} ", " alpha "),
        ("$${env:A}", "$alpha"),
        ("a}${env:A}}", "a}alpha}"),
        ("${a} ${env:A}", "${a} alpha"),
        ("${env::A}", "alpha"),
        ("${env:INDIRECT}", "${env:A}"),
        ("${file:@/s.properties:k}", "v alue more"),
        ("${file:@/s.properties:umlaut}", "ü"),
        ("${file:@/s.properties:ref}", "${env:A}"),
        ("${dir:@/d:f}", "content\n"),
        ("${dir:@/d/:f}", "content\n"),
        ("${file:@/s.properties:k}${env:A}${dir:@/d:f}", "v alue morealphacontent\n"),
    ],
)
def test_a_variable_becomes_what_its_provider_has(text: str, value: str, place: Path) -> None:
    assert resolved(text, place) == value


@pytest.mark.parametrize(
    "text",
    [
        "${env:NONE}",
        "${other:A}",
        "${ENV:A}",
        "${env: A}",
        "${A}",
        "${env:}",
        "${:A}",
        "${${env:A}}",
        "${env:A",
        "${env:\nA}",
        "${file:@/s.properties:none}",
        "${file:@/s.properties:um:laut}",
        "${file::k}",
        "${file:k}",
        "${dir:f}",
        "${dir:relative:f}",
        "${dir:@/d:none}",
        "${dir:@/none:f}",
        "${dir:@/d:sub}",
        "${dir:@/d:../s.properties}",
    ],
)
def test_a_variable_without_a_value_stays(text: str, place: Path) -> None:
    assert resolved(text, place) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${env:p:A}", "has no path, but one has p"),
        ("${env:A:}", "has no path, but one has A"),
        ("${env:${env:A}}", "has no path"),
        ("${file:@/none:k}", "cannot read .*/none: No such file"),
        ("${file:@/d:k}", "cannot read .*/d: Is a directory"),
    ],
)
def test_what_cannot_be_a_variable_is_an_error(text: str, problem: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolved(text, place)


def test_a_broken_property_file_is_named_and_not_quoted(place: Path) -> None:
    (place / "broken").write_text("password=Marker\\u12\n")
    with pytest.raises(ConfigError, match="broken is not a property file") as caught:
        resolved("${file:@/broken:password}", place)
    assert "Marker" not in str(caught.value)


def test_an_environment_variable_must_match_the_allowlist_as_a_whole(place: Path) -> None:
    pattern = "config.providers.env.param.allowlist.pattern"
    assert resolved("${env:SECRET}${env:A}", place, {pattern: "SEC.*"}) == "Marker-17${env:A}"
    assert resolved("${env:SECRET}", place, {pattern: "ECRET"}) == "${env:SECRET}"
    with pytest.raises(ConfigError, match=r"allowlist.pattern=.* is not a regular expression"):
        resolved("", place, {pattern: "("})


@pytest.mark.parametrize(
    ("allowed", "text", "is_read"),
    [
        ("@", "${file:@/s.properties:k}", True),
        ("@/s.properties", "${file:@/s.properties:k}", True),
        ("@/d,@/d/..", "${file:@/s.properties:k}", True),
        ("", "${file:@/s.properties:k}", True),
        ("@/d", "${file:@/s.properties:k}", False),
        ("@/d", "${file:@/d/../s.properties:k}", False),
        ("@/d", "${file:@/none:k}", False),
        ("@/d", "${dir:@/d:f}", True),
        ("@/s.properties", "${dir:@/d:f}", False),
    ],
)
def test_only_allowed_paths_are_read(allowed: str, text: str, is_read: bool, place: Path) -> None:
    paths = allowed.replace("@", str(place))
    more = {f"config.providers.{name}.param.allowed.paths": paths for name in ("file", "dir")}
    assert (resolved(text, place, more) != text) is is_read


@pytest.mark.parametrize(
    ("allowed", "problem"),
    [
        ("relative", "relative is not absolute"),
        (" /tmp", " /tmp is not absolute"),
        ("/no/such", "/no/such does not exist"),
    ],
)
def test_an_allowed_path_is_absolute_and_exists(allowed: str, problem: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolved("", place, {"config.providers.file.param.allowed.paths": allowed})


def test_a_provider_without_a_class_is_ignored_and_a_name_is_not_trimmed(place: Path) -> None:
    assert resolved("${env:A}", place, {"config.providers": ""}) == "${env:A}"
    assert resolved("${file:@/s.properties:k}", place, {"config.providers": "env, file"}) == "${file:@/s.properties:k}"
    texts = {"config.providers": "env,vault", "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider"}
    assert resolve({**texts, "x": "${env:A}${vault:A}"}, FILES, ENVIRONMENT).texts["x"] == "alpha${vault:A}"


@pytest.mark.parametrize("name", ["no.Such", "${env:A}", "com.example.VaultConfigProvider"])
def test_another_class_is_refused_by_its_name(name: str, place: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved("", place, {"config.providers.env.class": name})
    assert str(caught.value).startswith(f"config.providers.env.class={name}: the providers are ")


def lines(*texts: str) -> str:
    return "".join(f"{text}\n" for text in (*(f"{name}={text}" for name, text in PROVIDERS.items()), *texts))


def test_a_broker_reads_all_settings_that_are_given_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(lines("num.partitions=${env:COUNT}", "listeners=PLAINTEXT://${env:HOST}:9092"))
    environment = {"COUNT": "7", "HOST": "127.0.0.1", "RACK": "r1"}
    config = load_config(str(file), port=1234, settings=["broker.rack=${env:RACK}"], environment=environment)
    assert (config.num_partitions, config.broker_rack) == (7, "r1")
    assert [(each.host, each.port) for each in config.listeners] == [("127.0.0.1", 1234)]


def test_the_names_of_providers_are_known_and_an_unresolved_variable_is_logged(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(lines("broker.rack=${env:NONE}", "no.such=1"))
    with capture_logs() as logs:
        load_config(str(file), environment={}).warn()
    assert [(each["event"], each["names"]) for each in logs] == [
        ("unknown settings ignored", ["no.such"]),
        ("variables without a value are kept as they are", ["broker.rack"]),
    ]


def config(**settings: str) -> BrokerConfig:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig.single_node({**PROVIDERS, **texts}, environment={"ALPHA": "alpha", "N": "3", **ENVIRONMENT})


def test_a_description_shows_no_text_of_a_provider_but_numbers_and_choices() -> None:
    given = config(broker_rack="${env:SECRET}", num_partitions="${env:N}", ssl_key_password="plain")
    hidden = describe_broker_setting(given, "broker.rack")
    assert (hidden.value, hidden.is_sensitive) == (None, True)
    assert all(synonym.value is None for synonym in hidden.synonyms)
    assert describe_broker_setting(given, "num.partitions").value == "3"
    assert describe_broker_setting(config(compression_type="gzip"), "compression.type").value == "gzip"
    assert describe_broker_setting(config(broker_rack="r1"), "broker.rack").value == "r1"


def check(settings: dict[str, str]) -> None:
    given = BrokerConfig.single_node(settings, environment=ENVIRONMENT)
    with given.provided.hiding():
        given.check_protection()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "${env:SECRET}"),
        ("listeners", "PLAINTEXT://127.0.0.1:${env:SECRET}"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,${env:SECRET}"),
        ("sasl.enabled.mechanisms", "PLAIN,${env:SECRET}"),
        ("compression.type", "${env:SECRET}"),
    ],
)
def test_an_error_shows_nothing_that_a_provider_yielded(name: str, text: str) -> None:
    settings = {"sasl.enabled.mechanisms": "PLAIN", name: text}
    if name == "sasl.enabled.mechanisms":
        settings |= {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(ConfigError) as caught:
        check({**PROVIDERS, **settings})
    assert "marker" not in str(caught.value).lower()
    assert name in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_short_secret_is_hidden_only_where_it_is_a_word() -> None:
    texts = {**PROVIDERS, "num.partitions": "${env:N}"}
    provided = resolve(texts, FILES, {"N": "a"}).provided
    assert provided.hidden("num.partitions=a is not an integer") == "num.partitions=[hidden] is not an integer"
