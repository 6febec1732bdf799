"""Brokers of tests that are secured as those of a production, and the clients that connect to them as they say."""

from __future__ import annotations

import asyncio
import ssl
import sys
from functools import cache
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from odradek.broker.server import Broker
from odradek.broker.settings.listeners import PROTOCOLS
from odradek.broker.start_error import StartError
from odradek.cli.__main__ import main
from odradek.testing import (
    BrokerThread,
    ClusterThread,
    Security,
    allow,
    certificates,
    deny,
    in_process_broker,
    in_process_cluster,
)
from odradek.testing.certificates import certificate_of, certificate_of_brokers
from odradek.testing.security import DEFAULT_USER, as_security
from tests.patience import PATIENCE_S

SECURED = [protocol for protocol in PROTOCOLS if protocol != "PLAINTEXT"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USERS = {"bob": "bob-secret", 'a "quoted" user': 'a\\b=c, "d" ]é $'}


def use_kafka_python(settings: dict[str, Any]) -> None:
    producer = kafka.KafkaProducer(**settings)
    producer.send("topic", b"value").get(timeout=PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings)
    partition = kafka.TopicPartition("topic", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.poll(20_000)
    consumer.close()


def use_confluent_kafka(settings: dict[str, Any]) -> None:
    problems: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce("topic", b"value", on_delivery=lambda problem, message: problems.append(problem))
    assert producer.flush(20) == 0
    assert problems == [None]
    consumer = confluent_kafka.Consumer(settings | {"group.id": "group", "auto.offset.reset": "earliest"})
    consumer.subscribe(["topic"])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"value", message.error()
    consumer.close()


async def use_aiokafka(settings: dict[str, Any]) -> None:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("topic", b"value")
    async with aiokafka.AIOKafkaConsumer("topic", **settings, auto_offset_reset="earliest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"value"


def use_the_commands(properties: str, bootstrap: str, file: Path) -> None:
    file.write_text(properties)
    where = ("--bootstrap-server", bootstrap, "--command-config", str(file))
    assert main(["topics", "create", "commands", *where]) == 0
    lines = file.with_suffix(".lines")
    lines.write_text("value\n")
    assert main(["produce", "commands", "--file", str(lines), *where]) == 0
    assert main(["consume", "commands", "--from-beginning", "--exit", *where]) == 0


def use_all(broker: BrokerThread | ClusterThread, user: str | None, directory: Path) -> None:
    use_kafka_python(broker.client_settings("kafka-python", user))
    use_confluent_kafka(broker.client_settings("confluent-kafka", user))
    asyncio.run(use_aiokafka(broker.client_settings("aiokafka", user)))
    use_the_commands(broker.client_properties(user), broker.bootstrap, directory / "client.properties")


def principals(broker: Broker) -> set[str]:
    return {each.info.principal for each in broker.socket_server.connections}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_clients_connect_with_the_settings_they_are_given(protocol: str, tmp_path: Path) -> None:
    with BrokerThread(security=protocol, offsets_topic_num_partitions=1) as broker:
        assert broker.broker.endpoints[0].security_protocol == protocol
        use_all(broker, None, tmp_path)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_log_in_with_their_passwords(mechanism: str) -> None:
    security = Security("SASL_PLAINTEXT", mechanism=mechanism, users=USERS)
    with BrokerThread(security=security, offsets_topic_num_partitions=1) as broker:
        for user in USERS:
            use_kafka_python(broker.client_settings("kafka-python", user))
            use_confluent_kafka(broker.client_settings("confluent-kafka", user))
            asyncio.run(use_aiokafka(broker.client_settings("aiokafka", user)))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_the_broker_is_verified_as_strictly_as_since_python_3_13(protocol: str) -> None:
    async with in_process_broker(security=protocol) as broker:
        settings = broker.client_settings("aiokafka", DEFAULT_USER)
        settings["ssl_context"].verify_flags |= ssl.VERIFY_X509_STRICT
        assert settings["ssl_context"].check_hostname
        await use_aiokafka(settings)


async def test_a_connection_is_the_users() -> None:
    async with in_process_broker(security=Security(users=USERS)) as broker:
        for user in (None, *USERS):
            async with aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka", user)):
                assert principals(broker) == {f"User:{user or 'bob'}"}


async def test_the_name_of_a_certificate_is_the_user() -> None:
    async with in_process_broker(security="SSL") as broker:
        for user, principal in (("alice", "User:alice"), (None, "User:ANONYMOUS")):
            async with aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka", user)):
                assert principals(broker) == {principal}


async def test_a_client_without_security_is_refused() -> None:
    for protocol in SECURED:
        async with in_process_broker(security=protocol) as broker:
            client = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, request_timeout_ms=2000)
            with pytest.raises(aiokafka.errors.KafkaConnectionError):
                await client.start()
            await client.stop()


async def test_a_wrong_password_is_refused() -> None:
    async with in_process_broker(security="SASL_SSL") as broker:
        settings = broker.client_settings("aiokafka") | {"sasl_plain_password": "wrong"}
        client = aiokafka.AIOKafkaProducer(**settings)
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await client.start()
        await client.stop()


def test_a_cluster_is_secured_between_its_brokers_too(tmp_path: Path) -> None:
    with ClusterThread(security=Security("SASL_SSL", users=USERS)) as cluster:
        cluster.create_topic("topic")
        leader = cluster.leader("topic", 0)
        assert leader is not None
        use_all(cluster, "bob", tmp_path)
        connections = cluster.call(lambda: principals(cluster.cluster.brokers[leader]))
        assert "User:broker" in connections
        assert connections <= {"User:broker", "User:bob"}
        cluster.kill(leader)
        cluster.wait_for_isr("topic", 0, {1, 2, 3} - {leader})
        use_kafka_python(cluster.client_settings("kafka-python", "bob"))
        cluster.start(leader)
        cluster.wait_until_stable()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_brokers_of_a_cluster_are_users_themselves(protocol: str) -> None:
    with ClusterThread(security=protocol) as cluster:
        seen = cluster.call(lambda: {name for each in cluster.cluster.brokers.values() for name in principals(each)})
        assert seen == {"User:broker"}


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "confluent-kafka", "java"])
async def test_settings_hold_no_more_than_the_protocol_needs(client: str) -> None:
    async with in_process_broker() as broker:
        settings = broker.client_settings(client)
        assert list(map(str, settings.values())) == [broker.bootstrap, "PLAINTEXT"]


def test_what_would_have_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="security 'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        as_security("TLS")
    with pytest.raises(ValueError, match="users and mechanism have no use with SSL"):
        Security("SSL", users=USERS)
    with pytest.raises(ValueError, match="mechanism 'GSSAPI' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        Security(mechanism="GSSAPI")
    with pytest.raises(ValueError, match="the user broker is that of the brokers"):
        Security(users={"broker": "secret"})


async def test_what_is_asked_for_must_be_there() -> None:
    async with in_process_broker(security="SASL_SSL") as broker:
        with pytest.raises(ValueError, match="there is no user 'bob'; the users: alice"):
            broker.client_settings("java", "bob")
        with pytest.raises(ValueError, match="client 'franz-go' is not one of kafka-python, aiokafka, confluent-kafka"):
            broker.client_settings("franz-go")
    async with in_process_broker() as broker:
        with pytest.raises(ValueError, match="with PLAINTEXT nobody can be the user 'alice'"):
            broker.client_settings("java", "alice")
    with pytest.raises(ValueError, match="listeners is chosen by security=SSL"):
        async with in_process_broker(security="SSL", listeners="PLAINTEXT://127.0.0.1:0"):
            raise AssertionError


def test_a_repr_shows_no_password() -> None:
    assert "secret" not in repr(Security(users=USERS))


async def test_a_setting_may_ask_for_more() -> None:
    async with in_process_broker(security="SSL", ssl_client_auth="required") as broker:
        client = aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka"))
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await client.start()
        await client.stop()
        await use_aiokafka(broker.client_settings("aiokafka", DEFAULT_USER))


async def test_a_process_makes_its_certificates_once() -> None:
    shown = set()
    for _ in range(2):
        async with in_process_broker(security="SSL") as broker:
            shown.add(broker.client_settings("confluent-kafka")["ssl.ca.pem"])
    assert len(shown) == 1
    assert certificate_of_brokers("broker") is certificate_of_brokers("broker")
    assert certificate_of("alice") is certificate_of("alice")


async def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "odradek.broker.security.certificate_authority", raising=False)
    monkeypatch.setattr(certificates, "_authority", cache(certificates._authority.__wrapped__))
    monkeypatch.setattr(certificates, "certificate_of_brokers", certificates.certificate_of_brokers.__wrapped__)
    expected = r"TLS in tests needs a package that is missing \(cryptography\): pip install 'odradek\[security\]'"
    with pytest.raises(StartError, match=expected):
        async with in_process_broker(security="SASL_SSL"):
            raise AssertionError
    async with in_process_broker(security="SASL_PLAINTEXT") as broker:
        await use_aiokafka(broker.client_settings("aiokafka"))


ACLS = [
    allow("alice", "WRITE", "CREATE", topic="orders"),
    allow("bob", "READ", topic="ord", prefixed=True),
    allow("bob", "READ", group="*"),
]
PEOPLE = {"alice": "alice-secret", "bob": "bob-secret", "root": "root-secret"}


REFUSED = (aiokafka.errors.TopicAuthorizationFailedError, aiokafka.errors.GroupAuthorizationFailedError)


async def writes(settings: dict[str, Any], topic: str) -> bool:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        try:
            await producer.send_and_wait(topic, b"value")
        except REFUSED:
            return False
    return True


async def reads(settings: dict[str, Any], topic: str) -> bool:
    consumer = aiokafka.AIOKafkaConsumer(topic, **settings, group_id="group", auto_offset_reset="earliest")
    try:
        await consumer.start()
        return bool((await asyncio.wait_for(consumer.getone(), 20)).value == b"value")
    except REFUSED:
        return False
    finally:
        await consumer.stop()


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
async def test_users_may_do_what_an_acl_allows(protocol: str) -> None:
    security = Security(protocol, users=PEOPLE, super_users=["root"], acls=ACLS)
    async with in_process_broker(security=security) as broker:
        alice, bob, root = (broker.client_settings("aiokafka", user) for user in PEOPLE)
        assert await writes(alice, "orders")
        assert not await writes(bob, "orders")
        assert await writes(root, "others")
        assert await reads(bob, "orders")
        assert not await reads(alice, "orders")
        assert not await reads(bob, "others")


async def test_the_names_of_certificates_have_acls() -> None:
    async with in_process_broker(security=Security("SSL", acls=[*ACLS, deny("carol", "ALL", topic="*")])) as broker:
        assert await writes(broker.client_settings("aiokafka", "alice"), "orders")
        for user in ("bob", "carol", None):
            assert not await writes(broker.client_settings("aiokafka", user), "orders")


async def test_super_users_alone_refuse_all_others() -> None:
    async with in_process_broker(security=Security(users=PEOPLE, super_users=["root"])) as broker:
        assert await writes(broker.client_settings("aiokafka", "root"), "orders")
        assert not await writes(broker.client_settings("aiokafka", "alice"), "orders")


async def test_acls_hold_on_all_brokers_of_a_cluster() -> None:
    async with in_process_cluster(security=Security(users=PEOPLE, acls=ACLS)) as cluster:
        await cluster.create_topic("orders", partitions=3)
        for broker_id in cluster.ids:
            own = {"bootstrap_servers": cluster.bootstrap_of(broker_id)}
            assert await writes(cluster.client_settings("aiokafka", "alice") | own, "orders")
            assert not await writes(cluster.client_settings("aiokafka", "bob") | own, "orders")
        await cluster.restart(1)
        await cluster.wait_until_stable()
        assert await reads(cluster.client_settings("aiokafka", "bob"), "orders")


def test_acls_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="ACLs and super users have no use with PLAINTEXT"):
        Security("PLAINTEXT", acls=ACLS)
    with pytest.raises(ValueError, match="an ACL is about one of topic, group, transactional_id and cluster"):
        allow("alice", "READ")
    with pytest.raises(ValueError, match="an ACL is about one of"):
        deny("alice", "READ", topic="t", cluster=True)
    with pytest.raises(ValueError, match="at least one operation"):
        allow("alice", topic="t")
    for operation in ("read", "ANY"):
        with pytest.raises(ValueError, match=f"operation '{operation}' is not one of ALL, READ, WRITE, CREATE"):
            allow("alice", operation, topic="t")


def test_an_idempotent_producer_without_write_is_denied_the_cluster_and_another_one_the_topic() -> None:
    """As docs/testing.md says."""
    security = Security(
        "SASL_PLAINTEXT", users={"alice": "alice-secret"}, acls=[allow("alice", "DESCRIBE", topic="orders")]
    )
    with BrokerThread(security=security, offsets_topic_num_partitions=1) as broker:
        broker.seed({"orders": [b"an order"]})
        for is_idempotent, error in (
            (True, "ClusterAuthorizationFailedError"),
            (False, "TopicAuthorizationFailedError"),
        ):
            settings = broker.client_settings("kafka-python")
            producer = kafka.KafkaProducer(enable_idempotence=is_idempotent, **settings)
            with pytest.raises(kafka.errors.KafkaError, match=error):
                producer.send("orders", b"an order").get(timeout=PATIENCE_S)
            producer.close()
