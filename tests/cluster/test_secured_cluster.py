"""Three brokers that connect to each other by SASL_SSL, as processes on a ZooKeeper of Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.secured_cluster import SecuredCluster, secured_cluster
from tests.cluster.writer import Writer
from tests.patience import block_until
from tests.tls_files import NAMES
from tests.zookeeper.certificates import Authority
from tests.zookeeper.stores import new_chroot

TOPIC, PARTITIONS, PER_SECOND = "numbers", 6, 600
NOT_TRUSTED = "TLS failed: the certificate is not accepted: self-signed certificate in certificate chain"

pytestmark = [pytest.mark.programs, pytest.mark.timeout(600)]


@pytest.fixture
def secured(quick_zookeeper: str, tmp_path: Path) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path, quick_zookeeper + new_chroot()) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        yield cluster


def new_writer(cluster: SecuredCluster) -> Writer:
    security = cluster.client
    return Writer(str(security["bootstrap.servers"]), TOPIC, PARTITIONS, PER_SECOND, security)


def finish(cluster: SecuredCluster, writer: Writer, dump_tool: list[str]) -> None:
    """All that was written is there once, and on all replicas."""
    writer.finish()
    cluster.until_whole()
    writer.assert_written_once_and_in_order(str(cluster.client["bootstrap.servers"]), cluster.client)
    assert_replicas_agree(cluster, dump_tool)


def test_a_rolling_restart_loses_nothing(secured: SecuredCluster, dump_tool: list[str]) -> None:
    """Each broker comes back with another certificate."""
    writer = new_writer(secured)
    try:
        writer.until_acknowledged()
        for broker_id in secured.nodes:
            secured.terminate(broker_id)
            secured.files.write(f"{broker_id}.pem", secured.files.authority.sign("broker", *NAMES).pem)
            writer.until_acknowledged()
            secured.launch(broker_id)
            secured.until_whole()
            writer.until_acknowledged()
    finally:
        writer.stop()
    finish(secured, writer, dump_tool)


def test_certificates_that_are_replaced_while_brokers_run_are_used_between_them(
    secured: SecuredCluster, dump_tool: list[str]
) -> None:
    """The authority is exchanged without a restart: all trust both, all get new certificates, all trust the new one."""
    other = Authority("Other")
    steps = [
        {"authority.pem": secured.files.authority.pem + other.pem},
        {f"{broker_id}.pem": other.sign("broker", *NAMES).pem for broker_id in secured.nodes},
        {"authority.pem": other.pem},
    ]
    writer = new_writer(secured)
    try:
        writer.until_acknowledged()
        for number, step in enumerate(steps, 1):
            for name, data in step.items():
                secured.files.write(name, data)
            block_until(
                lambda number=number: all(  # type: ignore[misc]
                    secured.has_said(broker_id, "certificates replaced") == number for broker_id in secured.nodes
                )
            )
        last = max(secured.nodes)
        secured.kill(last)
        writer.until_acknowledged()
        secured.launch(last)
        secured.until_whole()
        writer.until_acknowledged()
    finally:
        writer.stop()
    writer.finish()
    assert_replicas_agree(secured, dump_tool)
    assert not any(secured.has_said(broker_id, "certificates not replaced") for broker_id in secured.nodes)


def test_a_broker_of_another_authority_does_not_join_and_the_others_go_on(
    secured: SecuredCluster, dump_tool: list[str]
) -> None:
    stranger = 3
    own = (secured.files.directory / f"{stranger}.pem").read_bytes()
    writer = new_writer(secured)
    try:
        writer.until_acknowledged()
        secured.terminate(stranger)
        secured.files.write(f"{stranger}.pem", Authority("Other").sign("broker", *NAMES).pem)
        secured.launch(stranger)
        controller = secured.controller()
        block_until(lambda: secured.has_said(controller, NOT_TRUSTED))
        block_until(lambda: secured.has_said(stranger, "TLS handshake failed"))
        writer.until_acknowledged(500)
        others = [one for one in secured.nodes if one != stranger]
        for one in others:
            for partition in range(PARTITIONS):
                state = secured.view(one).partitions[TopicPartition(TOPIC, partition)]
                assert state.isr == frozenset(others)
        secured.kill(stranger)  # SIGTERM would wait for a controller that it cannot reach
        secured.files.write(f"{stranger}.pem", own)
        secured.launch(stranger)
        secured.until_whole()
        writer.until_acknowledged()
    finally:
        writer.stop()
    finish(secured, writer, dump_tool)
