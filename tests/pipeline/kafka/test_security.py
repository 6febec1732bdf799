"""A pipeline whose topics are behind SASL_SSL: Spark's consumers and the driver's own clients log in alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.structs import TopicPartition
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest, report
from odradek.pipeline.kafka.admin import admin_client, committed_offsets
from odradek.pipeline.kafka.lag import partition_lags
from odradek.pipeline.kafka.security import connection_options
from odradek.pipeline.kafka.topics import look
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.places import Places
from odradek.pipeline.variables import hidden, resolved
from odradek.testing import BrokerThread, Security
from tests.pipeline.lake import check_tables, order, send

USERS = {"ann": 'ann\'s "secret"', "bob": "bob-secret"}


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    with BrokerThread(security=Security("SASL_SSL", users=USERS), num_partitions=2, log_retention_ms=-1) as broker:
        yield broker


@pytest.fixture
def pipeline(secured: BrokerThread, orders: Settings, tmp_path: Path) -> Settings:
    """The pipeline of `orders`, with a trust store in a file of PEM, as a production has it."""
    options = secured.client_settings("java", "ann")
    servers, certificates = options.pop("bootstrap.servers"), options.pop("ssl.truststore.certificates")
    file = tmp_path / "authority.pem"
    file.write_text(certificates)
    options["ssl.truststore.location"] = str(file)
    return replace(orders, bootstrap_server=servers, kafka=options)


def produce(broker: BrokerThread, topic: str, count: int) -> None:
    settings = broker.client_settings("kafka-python", "bob")
    send(settings.pop("bootstrap_servers"), topic, [order(number, number) for number in range(count)], **settings)


def test_a_topic_behind_tls_and_a_login_becomes_tables(
    spark: SparkSession, secured: BrokerThread, pipeline: Settings, topic: str
) -> None:
    settings = replace(pipeline, results_topic=f"{topic}-results")
    produce(secured, topic, 50)
    assert ingest.run(settings) == 0
    assert sum(row.good for row in check_tables(spark, settings)) == 50
    with admin_client(settings) as admin:
        assert committed_offsets(admin, settings.group) == {TopicPartition(topic, each): 25 for each in (0, 1)}
    assert [each.lag for each in partition_lags(settings, {topic: {0: 25, 1: 25}})] == [0, 0]
    principals = {each.info.principal for each in secured.broker.socket_server.connections}
    assert principals <= {"User:ann"}


def test_a_password_may_come_from_a_file_of_its_own(
    spark: SparkSession, secured: BrokerThread, pipeline: Settings, topic: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={USERS['bob']}\n")
    jaas = secured.client_settings("java", "bob")["sasl.jaas.config"]
    provided = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "sasl.jaas.config": jaas.replace(USERS["bob"], f"${{file:{secrets}:password}}"),
    }
    settings = replace(pipeline, kafka={**pipeline.kafka, **provided})
    assert USERS["bob"] not in str(settings)
    produce(secured, topic, 10)
    assert ingest.run(settings) == 0
    assert sum(row.good for row in check_tables(spark, settings)) == 10


@pytest.mark.usefixtures("spark")
def test_a_password_from_the_environment_is_stored_and_shown_nowhere(
    secured: BrokerThread, pipeline: Settings, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password = USERS["bob"]
    options = {**pipeline.kafka, "sasl.jaas.config": secured.client_settings("java", "bob")["sasl.jaas.config"]}
    given = {
        **{name: getattr(pipeline, name) for name in ("lake", "bootstrap_server", "schema", "event_time", "master")},
        "topics": [topic],
        "kafka": {name: text.replace(password, "${env:PASSWORD}") for name, text in options.items()},
    }
    settings = make_settings(resolved(given, "", {"PASSWORD": password}))
    produce(secured, topic, 10)
    plans: list[str] = []

    def reached(step: str) -> None:
        if step == "read":
            plans.append((Places.of(settings).state.path / "plan-0.json").read_text())

    assert ingest.run(settings, reached) == 0
    report.run(settings)
    shown = "".join(capsys.readouterr())
    files = [file for file in Path(settings.lake).rglob("*") if file.is_file()]
    assert len(plans) == 1
    assert len(files) > 6
    assert not [file for file in files if password.encode() in file.read_bytes()]
    assert password not in f"{plans} {shown} {settings}"
    wrong = replace(settings, kafka={**settings.kafka, "ssl.truststore.location": f"/no/{password}"})
    with pytest.raises(PipelineError) as caught:
        look(wrong, list)
    assert password not in hidden(str(caught.value), wrong.secrets)


def test_a_wrong_password_ends_a_job_at_once_and_is_not_shown(
    spark: SparkSession, secured: BrokerThread, pipeline: Settings, topic: str
) -> None:
    produce(secured, topic, 1)
    jaas = pipeline.kafka["sasl.jaas.config"].replace("secret", "wrong-secret")
    settings = replace(pipeline, kafka={**pipeline.kafka, "sasl.jaas.config": jaas})
    with pytest.raises(PipelineError) as caught:
        look(settings, list)
    text = str(caught.value)
    assert f"{secured.bootstrap} refuses the login of ann by SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED" in text
    assert "check sasl.mechanism and sasl.jaas.config in [kafka]" in text
    assert "secret" not in text


def test_the_options_of_the_java_client_become_those_of_kafka_python(secured: BrokerThread) -> None:
    options = secured.client_settings("java", "ann") | {"max.poll.records": "5000"}
    found = connection_options(options)
    assert found.pop("ssl_context").check_hostname
    assert found == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": USERS["ann"],
    }
    context = connection_options(options | {"ssl.endpoint.identification.algorithm": ""})["ssl_context"]
    assert not context.check_hostname


def test_options_that_cannot_be_kept_are_reported() -> None:
    with pytest.raises(PipelineError, match=r"^\[kafka\] ssl\.truststore\.location=/no/file: No such file"):
        connection_options({"security.protocol": "SSL", "ssl.truststore.location": "/no/file"})


def test_a_client_is_known_by_its_certificate(
    spark: SparkSession, orders: Settings, topic: str, tmp_path: Path
) -> None:
    """Mutual TLS, with the key and the certificate in a file of PEM."""
    with BrokerThread({"ssl.client.auth": "required"}, security="SSL", num_partitions=2, log_retention_ms=-1) as broker:
        python = broker.client_settings("kafka-python", "bob")
        send(python.pop("bootstrap_servers"), topic, [order(number, number) for number in range(10)], **python)
        options = broker.client_settings("java", "ann")
        servers = options.pop("bootstrap.servers")
        key, chain = options.pop("ssl.keystore.key"), options.pop("ssl.keystore.certificate.chain")
        file = tmp_path / "ann.pem"
        file.write_text(key + chain)
        options["ssl.keystore.location"] = str(file)
        settings = replace(orders, bootstrap_server=servers, kafka=options, results_topic=f"{topic}-results")
        assert ingest.run(settings) == 0
        assert sum(row.good for row in check_tables(spark, settings)) == 10
        assert {each.info.principal for each in broker.broker.socket_server.connections} == {"User:ann"}
