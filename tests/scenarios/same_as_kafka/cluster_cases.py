"""ApiVersions, DescribeCluster, DescribeLogDirs, FindCoordinator, InitProducerId, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()


@CASES.of(range(5))
def client_software_names_and_versions(b: Peer) -> None:
    for name, software in (
        ("", ""),
        ("a", "1"),
        ("a b", "1"),
        ("a", "1 2"),
        ("-a", "1"),
        ("a.b-c", "1.2-c"),
        ("ü", "1"),
    ):
        answer = b.ask(
            ApiKey.API_VERSIONS, {"client_software_name": name, "client_software_version": software}, is_noted=False
        )
        b.note(f"API_VERSIONS of {name}", answer.get("ErrorCode"))


@CASES.of([0, 1])
def the_cluster_is_described(b: Peer) -> None:
    for asked in (False, True):
        b.ask(ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": asked})


@CASES.of([1])
def endpoint_types_of_the_cluster(b: Peer) -> None:
    for kind in (1, 2, 0, 3, -1):
        b.ask(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": kind, "include_cluster_authorized_operations": True})


def log_dirs(b: Peer, topics: list[dict[str, Any]]) -> None:
    answer = b.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics}, is_noted=False)
    for result in answer["Results"] if b.version >= 4 else ():
        b.note("usable bytes", 0 < result.pop("UsableBytes") < result["TotalBytes"])
    b.note("DESCRIBE_LOG_DIRS", answer)


@CASES.of(range(5))
def log_directories_are_described(b: Peer) -> None:
    topic = b.create("t", 2)
    b.produce(topic, batch(b"x" * 100))
    log_dirs(b, [{"topic": topic, "partitions": [0, 1]}])
    log_dirs(b, [{"topic": topic, "partitions": [1, 7, -1]}, {"topic": b.name("none"), "partitions": [0]}])
    log_dirs(b, [{"topic": topic, "partitions": []}])
    log_dirs(b, [{"topic": topic, "partitions": [0, 0]}, {"topic": topic, "partitions": [0]}])
    log_dirs(b, [])


def wait_for_coordinators(b: Peer) -> None:
    """Kafka creates the coordinators' topics and fetches producer ids on the first request."""
    nobody = {"transactional_id": None, "transaction_timeout_ms": 60000}
    for _ in range(100):
        if b.ask(ApiKey.INIT_PRODUCER_ID, nobody, 1, is_noted=False)["ErrorCode"] == 0:
            break
        time.sleep(0.1)
    for key_type in (0, 1):
        for _ in range(100):
            answer = b.ask(ApiKey.FIND_COORDINATOR, {"key": "x", "key_type": key_type}, 1, is_noted=False)
            if answer["ErrorCode"] == 0:
                break
            time.sleep(0.1)


@CASES.of([0, 1, 2, 3])
def coordinators_of_one_key(b: Peer) -> None:
    wait_for_coordinators(b)
    for key_type in (0, 1) if b.version else (0,):
        for key in ("some-group", "", "ü"):
            b.ask(ApiKey.FIND_COORDINATOR, {"key": key, "key_type": key_type})
    for key_type in (2, 3, -1) if b.version else ():
        b.ask(ApiKey.FIND_COORDINATOR, {"key": "x", "key_type": key_type})


@CASES.of([4, 5, 6])
def coordinators_of_several_keys(b: Peer) -> None:
    wait_for_coordinators(b)
    for keys in (["a"], ["a", "b"], ["a", "a"], [], [""]):
        for key_type in (0, 1):
            b.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": keys, "key_type": key_type})
    for key_type in (2, 3, -1):
        b.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["a", "b"], "key_type": key_type})


@CASES.of(range(6))
def producer_ids_without_a_transactional_id(b: Peer) -> None:
    wait_for_coordinators(b)
    b.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 60000})
    b.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": -1})
    if b.version >= 3:
        for producer_id, epoch in ((5, 1), (5, -1), (-1, 5), (-2, -2), (5, 32767)):
            asked = {"transactional_id": None, "producer_id": producer_id, "producer_epoch": epoch}
            b.ask(ApiKey.INIT_PRODUCER_ID, {**asked, "transaction_timeout_ms": 60000})


@CASES.of(range(6))
def producer_ids_with_invalid_transactional_ids(b: Peer) -> None:
    b.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": "", "transaction_timeout_ms": 60000})
    if b.version >= 3:
        for producer_id, epoch in ((5, -1), (-1, 5)):
            asked = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch}
            b.ask(ApiKey.INIT_PRODUCER_ID, {**asked, "transaction_timeout_ms": 60000})


@CASES.of(range(2))
def a_sasl_handshake_on_a_plaintext_listener(b: Peer) -> None:
    for mechanism in ("PLAIN", "", "NONE"):
        b.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})


@CASES.of(range(3))
def sasl_authentication_on_a_plaintext_listener(b: Peer) -> None:
    b.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\x00user\x00password"})
    b.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b""})
