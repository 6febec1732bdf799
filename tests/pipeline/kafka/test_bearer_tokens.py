"""A pipeline that logs in by SASL OAUTHBEARER: Spark's consumers and the driver's own clients get tokens alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.structs import TopicPartition
from pyspark.sql import SparkSession

from odradek.clients.admin.bearer_tokens import BearerTokens
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.kafka.admin import admin_client, committed_offsets
from odradek.pipeline.kafka.security import connection_options
from odradek.pipeline.kafka.topics import look
from odradek.pipeline.settings import Settings
from odradek.storage.files import OsFiles
from odradek.testing import BrokerThread, Security
from tests.pipeline.kafka.bearers import TokenServer, gateway
from tests.pipeline.lake import check_tables, order, send
from tests.spawned_broker import free_port

SECRETS = {"ann": "ann's-secret"}
PASSWORDS = {"ann": "brokers-secret"}
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with TokenServer(SECRETS) as server:
        yield server


@pytest.fixture(scope="module")
def behind(tokens: TokenServer) -> Iterator[tuple[BrokerThread, str]]:
    """A broker behind the gateway, and the gateway's address."""
    port = free_port()
    security = Security("SASL_PLAINTEXT", mechanism="PLAIN", users=PASSWORDS)
    advertised = {"advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}"}
    with BrokerThread(advertised, security=security, num_partitions=2, log_retention_ms=-1) as broker:
        ports = broker.broker.ports()
        with gateway(port, ("127.0.0.1", next(iter(ports))), tokens, PASSWORDS):
            yield broker, f"127.0.0.1:{port}"


@pytest.fixture
def pipeline(behind: tuple[BrokerThread, str], tokens: TokenServer, orders: Settings) -> Settings:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "sasl.jaas.config": f'{MODULE} required clientId="ann" clientSecret="{SECRETS["ann"]}" scope="kafka";',
    }
    return replace(orders, bootstrap_server=behind[1], kafka=options)


def produce(settings: Settings, topic: str, count: int) -> None:
    options = connection_options(settings.kafka)
    send(settings.bootstrap_server, topic, [order(number, number) for number in range(count)], **options)


def test_a_topic_behind_tokens_becomes_tables(
    spark: SparkSession, behind: tuple[BrokerThread, str], tokens: TokenServer, pipeline: Settings, topic: str
) -> None:
    produce(pipeline, topic, 50)
    before = len(tokens.issued)
    assert ingest.run(pipeline) == 0
    assert sum(row.good for row in check_tables(spark, pipeline)) == 50
    with admin_client(pipeline) as admin:
        assert committed_offsets(admin, pipeline.group) == {TopicPartition(topic, each): 25 for each in (0, 1)}
    assert {each.info.principal for each in behind[0].broker.socket_server.connections} == {"User:ann"}
    assert before == 1, "all clients of Python share a token"
    assert len(tokens.issued) > before, "Java got its own"
    assert set(tokens.scopes) == {"kafka"}


@pytest.mark.usefixtures("spark")
def test_a_token_in_a_file_logs_in_and_a_wrong_one_ends_a_job_at_once(
    tokens: TokenServer, pipeline: Settings, topic: str, tmp_path: Path
) -> None:
    produce(pipeline, topic, 1)
    file = tmp_path / "token.jwt"
    file.write_text(f"{tokens.new('ann', 0, 3600)}\n")
    options = {"sasl.oauthbearer.token.endpoint.url": file.as_uri(), "sasl.jaas.config": f"{MODULE} required;"}
    settings = replace(pipeline, kafka={**pipeline.kafka, **options})
    assert ingest.run(settings) == 0
    file.write_text("bm8.dG9rZW4.c2ln")
    with pytest.raises(PipelineError, match="refuses the login of the holder of the token by OAUTHBEARER: SASL_AUTH"):
        look(settings, list)
    file.unlink()
    with pytest.raises(PipelineError, match=r"cannot read .*/token.jwt: No such file or directory"):
        look(settings, list)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl.jaas.config": f'{MODULE} required clientId="ann" clientSecret="not-the-secret";'}, "ann no token: 401"),
        ({"sasl.jaas.config": f'{MODULE} required clientId="ann";'}, "lacks the option clientSecret"),
        ({"sasl.jaas.config": 'a.PlainLoginModule required username="ann";'}, f"of OAUTHBEARER is {MODULE}"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/t"}, "ann no token: .*Connection refused"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://a/t"}, "with http, https or file"),
        ({"sasl.login.callback.handler.class": "aws.Handler"}, "other classes are Java's alone"),
    ],
)
def test_options_that_give_no_token_are_reported(pipeline: Settings, changes: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=rf"^\[kafka\] .*{says}") as caught:
        connection_options({**pipeline.kafka, **changes})
    assert "secret" not in str(caught.value).replace("clientSecret", "").replace("not-the-secret", "secret")


def test_a_token_is_used_until_most_of_its_life_has_passed(tokens: TokenServer) -> None:
    now = 100.0
    login = {"clientId": "ann", "clientSecret": SECRETS["ann"]}
    bearer = BearerTokens(tokens.url, login, OsFiles(), lambda: now)
    first = bearer.token()
    now += 3600 * 0.79
    assert bearer.token() == first
    now += 3600 * 0.02
    assert bearer.token() != first
