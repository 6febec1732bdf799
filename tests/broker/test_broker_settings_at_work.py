"""Every broker setting marked as taking effect changes what a client or the disk of a running broker shows.

test_topic_settings_at_work.py tests the defaults of topics. ELSEWHERE names tests of settings in other files. The
last test fails for a setting without any test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.broker.background.background import Background
from odradek.broker.server import Broker
from odradek.broker.settings import BROKER, TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.producers import DescribeProducersRequest
from odradek.protocol.records import Compression
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT, read_offsets
from odradek.storage.segment.tail import ENTRY_BYTES
from odradek.testing import in_process_broker
from tests.broker.test_topic_settings_at_work import log_of, now_ms, produce, produced, topic_with
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker
from tests.wire.frames import API_VERSIONS_V0, framed, request_payload
from tests.wire.raw_client import RawClient, raw_client

TESTS = Path(__file__).parent.parent
Test = TypeVar("Test", bound=Callable[..., Any])

FETCHES = "broker/cluster/test_member.py::test_a_follower_fetches_as_the_settings_say"
LAST_BROKER = "broker/cluster/test_member.py::test_the_last_broker_asks_as_often_as_the_settings_say_and_then_stops"
ELSEWHERE = {
    "zookeeper.connect": (
        "broker/metadata_store/test_factory.py::test_a_broker_with_zookeeper_connect_shares_its_metadata"
    ),
    "zookeeper.connection.timeout.ms": (
        "broker/metadata_store/test_factory.py::test_a_start_waits_for_zookeeper_as_long_as_the_settings_say"
    ),
    "zookeeper.max.in.flight.requests": (
        "broker/metadata_store/test_factory.py::test_as_many_requests_are_in_flight_as_the_settings_say"
    ),
    "zookeeper.session.timeout.ms": (
        "testing/test_cluster.py::test_a_broker_that_starts_at_once_after_a_kill_waits_for_the_end_of_its_old_session"
    ),
    **dict.fromkeys(
        ("odradek.security.auth.login.config", "zookeeper.set.acl"),
        "broker/metadata_store/test_session_security.py::test_a_broker_logs_in_as_its_jaas_file_says",
    ),
    **dict.fromkeys(
        (
            "zookeeper.clientCnxnSocket",
            "zookeeper.ssl.client.enable",
            "zookeeper.ssl.keystore.location",
            "zookeeper.ssl.keystore.password",
            "zookeeper.ssl.truststore.location",
            "zookeeper.ssl.truststore.password",
        ),
        "broker/metadata_store/test_zookeeper_tls.py::test_both_sides_show_certificates",
    ),
    **dict.fromkeys(
        ("zookeeper.ssl.keystore.type", "zookeeper.ssl.truststore.type"),
        "broker/metadata_store/test_zookeeper_tls.py::test_a_type_that_fits_is_accepted",
    ),
    **dict.fromkeys(
        ("zookeeper.ssl.enabled.protocols", "zookeeper.ssl.protocol"),
        "broker/metadata_store/test_zookeeper_tls.py::test_the_versions_are_those_of_the_settings",
    ),
    "zookeeper.ssl.cipher.suites": (
        "broker/metadata_store/test_zookeeper_tls.py::test_the_cipher_suites_are_those_of_the_settings"
    ),
    "zookeeper.ssl.endpoint.identification.algorithm": (
        "broker/metadata_store/test_zookeeper_tls.py::test_the_name_of_the_server_is_verified_unless_the_setting_is_empty"
    ),
    **dict.fromkeys(
        (
            "ssl.key.password",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
        ),
        "broker/test_tls_listeners.py::test_keys_and_certificates_may_stand_in_any_form",
    ),
    "ssl.truststore.type": (
        "broker/settings/test_tls_settings.py::test_the_type_of_a_store_is_that_of_its_content_unless_it_is_set"
    ),
    **dict.fromkeys(
        ("ssl.cipher.suites", "ssl.enabled.protocols"),
        "broker/test_tls_listeners.py::test_versions_and_suites_are_those_of_the_settings",
    ),
    "ssl.client.auth": (
        "broker/test_tls_listeners.py::test_brokers_replicate_over_tls_with_certificates_of_both_sides"
    ),
    "ssl.endpoint.identification.algorithm": (
        "broker/test_tls_listeners.py::test_brokers_verify_each_others_names_unless_the_setting_is_empty"
    ),
    **dict.fromkeys(
        ("ssl.allow.dn.changes", "ssl.allow.san.changes"),
        "broker/test_certificate_reload.py::test_other_names_may_be_allowed",
    ),
    "authorizer.class.name": (
        "broker/authorization/test_authorization_beside_kafka.py::test_every_request_is_answered_as_by_kafka"
    ),
    "odradek.other.inter.broker.listener.name": (
        "broker/test_moving_listeners.py::test_brokers_move_one_by_one_and_stay_in_sync"
    ),
    "ssl.principal.mapping.rules": (
        "broker/network/test_tls_transport.py::test_mapping_rules_give_the_principal_its_name"
    ),
    "odradek.max.handshakes.per.ip": (
        "broker/network/test_tls_transport.py::test_too_many_handshakes_of_one_address_are_refused"
    ),
    "sasl.enabled.mechanisms": (
        "broker/settings/test_sasl_listeners.py"
        "::test_a_listener_has_its_own_mechanisms_and_each_its_own_module_and_lifetime"
    ),
    "sasl.jaas.config": (
        "broker/test_sasl_mechanisms.py::test_users_of_plain_are_options_of_the_listeners_login_module"
    ),
    "sasl.mechanism.inter.broker.protocol": (
        "clients/connections/test_logins.py::test_brokers_of_a_cluster_authenticate_to_each_other"
    ),
    "sasl.server.max.receive.size": (
        "broker/settings/test_sasl_listeners.py"
        "::test_a_listener_has_its_own_mechanisms_and_each_its_own_module_and_lifetime"
    ),
    "connections.max.reauth.ms": (
        "broker/handlers/test_authenticating.py::test_a_session_has_a_lifetime_and_may_be_renewed"
    ),
    "connection.failed.authentication.delay.ms": (
        "broker/handlers/test_authenticating.py::test_the_answer_and_the_end_wait_for_the_delay"
    ),
    "odradek.scram.credentials.file": (
        "broker/cluster/test_user_credentials.py::test_a_start_adds_the_credentials_of_the_file"
    ),
    "inter.broker.protocol.version": "broker/settings/test_settings_table.py::test_a_value_is_parsed_as_in_java",
    "replica.fetch.wait.max.ms": FETCHES,
    "replica.fetch.min.bytes": FETCHES,
    "replica.fetch.response.max.bytes": FETCHES,
    "replica.fetch.max.bytes": FETCHES,
    "replica.socket.timeout.ms": FETCHES,
    "replica.fetch.backoff.ms": (
        "broker/replica/test_fetchers.py"
        "::test_the_delay_grows_with_each_error_up_to_the_setting_and_begins_anew_after_a_success"
    ),
    "num.replica.fetchers": "broker/cluster/test_member.py::test_the_number_of_fetchers_can_be_changed",
    "socket.connection.setup.timeout.ms": (
        "broker/cluster/test_member.py::test_a_broker_connects_to_others_within_the_time_of_the_setting"
    ),
    "controlled.shutdown.enable": (
        "broker/cluster/test_member.py::test_a_broker_may_stop_without_a_controlled_shutdown"
    ),
    "controlled.shutdown.max.retries": LAST_BROKER,
    "controlled.shutdown.retry.backoff.ms": LAST_BROKER,
    "controller.socket.timeout.ms": LAST_BROKER,
    "auto.leader.rebalance.enable": "broker/controller/test_elections.py::test_the_balance_may_be_disabled",
    "leader.imbalance.per.broker.percentage": (
        "broker/controller/test_elections.py::test_a_small_imbalance_stays_and_so_does_one_during_a_reassignment"
    ),
    "leader.imbalance.check.interval.seconds": (
        "broker/cluster/test_member.py::test_leaders_are_balanced_at_their_interval"
    ),
    "auto.create.topics.enable": "broker/handlers/test_metadata_api.py::test_the_broker_can_forbid_creation",
    "num.partitions": "broker/handlers/test_metadata_api.py::test_created_topics_have_the_brokers_default_counts",
    "default.replication.factor": (
        "broker/handlers/test_metadata_api.py::test_a_topic_that_cannot_be_created_returns_the_reason"
    ),
    "delete.topic.enable": "broker/handlers/test_topics_api.py::test_deletion_can_be_switched_off",
    "fetch.max.bytes": "broker/replica/test_over_sockets.py::test_the_brokers_own_limit_bounds_a_fetch",
    "max.incremental.fetch.session.cache.slots": (
        "broker/replica/test_over_sockets.py::test_the_number_of_sessions_is_a_setting"
    ),
    "transaction.partition.verification.enable": (
        "broker/handlers/test_transactional_log_api.py"
        "::test_without_verification_a_late_batch_hangs_until_an_administrator_ends_its_transaction"
    ),
    "broker.id": "broker/test_server.py::test_the_directory_of_another_cluster_or_broker_is_refused",
    "node.id": "broker/settings/test_config.py::test_node_id_and_broker_id_are_synonyms",
    "reserved.broker.max.id": (
        "broker/settings/test_settings_in_effect.py::test_a_node_without_an_id_gets_the_next_one_above_the_reserved_ids"
    ),
    "broker.id.generation.enable": (
        "broker/settings/test_config.py::test_settings_that_contradict_each_other_are_refused"
    ),
    "process.roles": "broker/settings/test_listeners.py::test_a_kraft_controllers_listener_stays_closed",
    "controller.listener.names": "broker/settings/test_listeners.py::test_a_kraft_controllers_listener_stays_closed",
    "listeners": "broker/test_server.py::test_each_listener_returns_its_own_advertised_address",
    "advertised.listeners": "broker/test_server.py::test_each_listener_returns_its_own_advertised_address",
    "listener.security.protocol.map": ("broker/test_server.py::test_each_listener_returns_its_own_advertised_address"),
    "inter.broker.listener.name": "broker/settings/test_listeners.py::test_invalid_listeners_are_refused",
    "security.inter.broker.protocol": "broker/settings/test_listeners.py::test_invalid_listeners_are_refused",
    "socket.receive.buffer.bytes": (
        "broker/settings/test_settings_in_effect.py::test_socket_buffers_have_the_configured_size"
    ),
    "socket.send.buffer.bytes": (
        "broker/settings/test_settings_in_effect.py::test_socket_buffers_have_the_configured_size"
    ),
    "odradek.as.version": "broker/handlers/test_releases.py::test_a_broker_lists_what_the_release_served",
    "odradek.console.enable": "broker/console/test_api.py::test_the_console_can_be_switched_off",
    "odradek.metrics.allowed.hosts": "scenarios/test_hostile_metrics_clients.py::test_other_host_names_can_be_allowed",
    "odradek.metrics.host": "broker/metrics/test_metrics.py::test_metrics_are_served_on_loopback_by_default",
    "odradek.metrics.port": "broker/metrics/test_metrics.py::test_health_is_200_while_clients_are_served",
    "odradek.max.request.bytes": (
        "scenarios/test_hostile_frames.py::test_only_a_produce_may_be_as_long_as_the_socket_allows"
    ),
    "odradek.max.response.bytes": (
        "scenarios/test_hostile_admin_requests.py"
        "::test_a_response_that_would_be_too_large_is_refused_before_it_is_built"
    ),
    "queued.max.request.bytes": (
        "scenarios/test_hostile_frames.py::test_unfinished_frames_share_one_bound_and_other_clients_continue"
    ),
    "odradek.max.queued.bytes.before.login": (
        "scenarios/test_hostile_logins.py::test_the_frames_of_all_strangers_share_a_small_bound"
    ),
    "odradek.login.timeout.ms": (
        "scenarios/test_hostile_logins.py::test_a_client_that_does_not_log_in_is_closed_at_the_deadline"
    ),
    "odradek.max.unread.bytes": (
        "broker/network/test_connection.py"
        "::test_many_clients_that_do_not_read_are_closed_before_their_responses_fill_the_memory"
    ),
    "odradek.max.unread.bytes.per.connection": (
        "broker/network/test_connection.py::test_too_many_unread_response_bytes_close_the_connection"
    ),
    "odradek.max.in.flight.bytes.per.connection": (
        "broker/network/test_connection.py::test_more_than_the_bounded_bytes_in_flight_is_not_handled"
    ),
    "log.cleaner.enable": "broker/cleaning/test_log_cleaner.py::test_without_the_cleaner_nothing_is_cleaned",
    "log.cleaner.backoff.ms": (
        "broker/cleaning/test_log_cleaner.py::test_the_cleaners_wait_for_the_backoff_between_rounds"
    ),
    "log.cleaner.io.max.bytes.per.second": (
        "broker/cleaning/test_log_cleaner.py::test_cleaners_do_not_exceed_the_bytes_per_second"
    ),
    **dict.fromkeys(
        (
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.io.buffer.load.factor",
            "log.cleaner.io.buffer.size",
        ),
        "broker/cleaning/test_log_cleaner.py"
        "::test_all_cleaners_together_use_the_configured_memory_for_keys_and_buffers",
    ),
    "log.cleaner.threads": (
        "broker/cleaning/test_log_cleaner.py::test_cleaners_share_the_throttle_and_their_number_follows_the_setting"
    ),
    **dict.fromkeys(
        (
            "offsets.commit.required.acks",
            "offsets.commit.timeout.ms",
            "offsets.load.buffer.size",
            "offsets.topic.compression.codec",
            "transaction.state.log.load.buffer.size",
        ),
        "broker/coordinator/test_internal_topics.py::test_the_runtimes_follow_the_settings",
    ),
    **dict.fromkeys(
        (
            "offsets.topic.num.partitions",
            "offsets.topic.segment.bytes",
            "transaction.state.log.min.isr",
            "transaction.state.log.segment.bytes",
        ),
        "broker/coordinator/test_internal_topics.py::test_the_topics_are_created_as_kafka_creates_them",
    ),
    "transaction.state.log.num.partitions": (
        "broker/coordinator/test_internal_topics.py"
        "::test_the_first_find_coordinator_creates_the_topic_and_a_retry_finds_the_coordinator"
    ),
    **dict.fromkeys(
        ("offsets.topic.replication.factor", "transaction.state.log.replication.factor"),
        "broker/coordinator/test_internal_topics.py"
        "::test_a_replication_factor_above_the_number_of_brokers_makes_the_coordinator_unavailable",
    ),
    "group.initial.rebalance.delay.ms": (
        "broker/handlers/test_group_settings.py::test_a_new_group_waits_for_more_members_for_the_configured_delay"
    ),
    **dict.fromkeys(
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        "broker/handlers/test_group_settings.py::test_session_timeouts_are_accepted_within_the_configured_bounds",
    ),
    "group.max.size": (
        "broker/handlers/test_group_settings.py::test_a_group_has_at_most_the_configured_number_of_members"
    ),
    "offset.metadata.max.bytes": (
        "broker/handlers/test_offsets_api.py::test_the_maximum_length_of_offset_metadata_is_a_setting"
    ),
    "offsets.retention.minutes": (
        "broker/handlers/test_offsets_api.py::test_offsets_expire_and_their_group_is_removed_with_the_last_offset"
    ),
    "offsets.retention.check.interval.ms": (
        "broker/handlers/test_offsets_api.py::test_offsets_are_checked_for_expiry_at_the_configured_interval"
    ),
    "transaction.max.timeout.ms": (
        "broker/handlers/test_transactions_api.py::test_the_maximum_transaction_timeout_is_a_setting"
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "broker/handlers/test_transactions_api.py::test_the_broker_aborts_a_transaction_after_its_timeout"
    ),
    **dict.fromkeys(
        ("transactional.id.expiration.ms", "transaction.remove.expired.transaction.cleanup.interval.ms"),
        "broker/handlers/test_transactions_api.py::test_the_broker_expires_an_unused_transactional_id",
    ),
    "num.replica.alter.log.dirs.threads": (
        "broker/handlers/test_log_dirs_api.py::test_at_most_the_configured_number_of_replicas_moves_at_a_time"
    ),
    **dict.fromkeys(
        ("replication.quota.window.num", "replication.quota.window.size.seconds"),
        "broker/test_throttled_reassignments.py::test_the_windows_of_the_quotas_are_settings",
    ),
    "replica.lag.time.max.ms": (
        "broker/test_in_sync_replicas.py::test_isrs_shrink_and_expand_at_the_configured_lag_and_are_counted"
    ),
    "min.insync.replicas": "broker/replica/test_partition.py::test_acks_all_needs_the_minimum_of_in_sync_replicas",
}
SHOWN_HERE: set[str] = set()


def shows(*names: str) -> Callable[[Test], Test]:
    """Marks a test as the test of these settings."""
    SHOWN_HERE.update(names)
    return lambda test: test


def peer_of(broker: Broker, host: str = "127.0.0.1") -> AbstractAsyncContextManager[RawClient]:
    return raw_client(broker.endpoints[0].port, host)


async def is_served(peer: RawClient) -> bool:
    peer.send(framed(API_VERSIONS_V0))
    return await peer.frame() is not None


async def create(api: Api, partitions: int) -> None:
    (result,) = (await api(requests.create_topics("t", partitions=partitions), 5)).topics
    assert result.error_code == ErrorCode.NONE


def fetch(min_bytes: int, max_wait_ms: int) -> bytes:
    limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": 1000, "partition_bytes": 1000}
    return request_payload(requests.fetch((TopicPartition("t", 0), 0), **limits), 4)


# --- connections


@shows("connections.max.idle.ms")
async def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    settings = {"connections.max.idle.ms": "1000"}
    async with in_process_broker(settings) as broker, peer_of(broker) as idle, peer_of(broker) as busy:
        closing = asyncio.create_task(idle.frame())
        while not closing.done():
            assert await is_served(busy)
            await asyncio.sleep(0.1)
        assert await closing is None
        assert await is_served(busy)
    async with in_process_broker({"connections.max.idle.ms": "-1"}) as broker, peer_of(broker) as peer:
        broker.socket_server.sweep()
        assert await is_served(peer)


@shows("max.connections")
async def test_connections_above_the_maximum_are_closed() -> None:
    async with in_process_broker({"max.connections": "2"}) as broker, peer_of(broker) as first:
        assert await is_served(first)
        async with peer_of(broker) as second, peer_of(broker) as third:
            assert await is_served(second)
            assert not await is_served(third)
        await until(lambda: len(broker.socket_server.connections) == 1)
        async with peer_of(broker) as fourth:
            assert await is_served(fourth)


@shows("max.connections.per.ip", "max.connections.per.ip.overrides")
async def test_connections_per_address_are_limited_with_overrides_for_some_addresses() -> None:
    settings = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.2:2"}
    async with in_process_broker(settings) as broker:
        for host, allowed in (("127.0.0.1", 1), ("127.0.0.2", 2), ("127.0.0.3", 1)):
            async with contextlib.AsyncExitStack() as stack:
                peers = [await stack.enter_async_context(peer_of(broker, host)) for _ in range(3)]
                assert [await is_served(peer) for peer in peers] == [number < allowed for number in range(3)]


@shows("socket.request.max.bytes")
async def test_a_request_above_the_maximum_size_closes_its_connection() -> None:
    async with in_process_broker({"socket.request.max.bytes": "1000"}) as broker:
        for size, served in ((1000, True), (1001, False)):
            async with peer_of(broker) as peer:
                peer.send(framed(API_VERSIONS_V0 + bytes(size - len(API_VERSIONS_V0))))
                assert (await peer.frame() is not None) == served


def backlog_of(port: int) -> int:
    """Returns the backlog as `ss` does: from the kernel's netlink response about listening sockets on this port."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:  # NETLINK_SOCK_DIAG
        request = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << 10)  # state LISTEN
        netlink.send(struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == 3:
                    raise LookupError(port)
                if struct.unpack_from(">H", data, 16 + 4)[0] == port:
                    return int(struct.unpack_from("=I", data, 16 + 60)[0])  # idiag_wqueue
                data = data[(length + 3) & ~3 :]


@shows("socket.listen.backlog.size")
async def test_the_listen_backlog_has_the_configured_size() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux reports a listener's backlog")
    for backlog in (7, 90):
        async with in_process_broker({"socket.listen.backlog.size": str(backlog)}) as broker:
            port = int(broker.bootstrap.rpartition(":")[2])
            assert backlog_of(port) == backlog


@shows("odradek.max.in.flight.requests.per.connection")
async def test_a_connection_with_too_many_requests_in_flight_is_paused_until_a_response() -> None:
    settings = {"odradek.max.in.flight.requests.per.connection": "2"}
    async with api_of_a_broker(settings) as api, peer_of(api.broker) as peer:
        await create(api, 1)
        for _ in range(5):
            peer.send(framed(fetch(1, 60_000)))
        purgatory = api.broker.replica_manager.fetch_purgatory
        await until(lambda: purgatory.delayed == 2)
        await asyncio.sleep(0.05)
        assert purgatory.delayed == 2
        assert (await produce(api)).error_code == ErrorCode.NONE
        assert all([await peer.frame() is not None for _ in range(5)])


@shows("odradek.log.tail.bytes")
async def test_the_newest_batches_are_kept_in_memory_up_to_the_limit() -> None:
    for limit, kept in (("0", 0), ("100", 0), ("100000", 5)):
        async with api_of_a_broker({"odradek.log.tail.bytes": limit}) as api:
            await create(api, 1)
            for _ in range(5):
                assert (await produce(api)).error_code == ErrorCode.NONE
            (partition,) = api.broker.replica_manager.partitions
            log = partition.log
            tail = log.segments.active.tail
            held = 0 if tail is None else tail.held_bytes
            assert held == (log.segments.size_in_bytes + kept * ENTRY_BYTES if kept else 0)
            assert log.tails is None or log.tails.held_bytes == held


# --- the node


@shows("broker.rack")
async def test_the_rack_of_the_node_is_returned_to_clients() -> None:
    for rack in (None, "cellar"):
        async with api_of_a_broker({} if rack is None else {"broker.rack": rack}) as api:
            (node,) = (await api(MetadataRequest(topics=[]), 9)).brokers
            assert node.rack == rack


@shows("request.timeout.ms")
async def test_a_metadata_request_stops_waiting_for_created_topics_at_the_timeout() -> None:
    for timeout, code in (("0", ErrorCode.LEADER_NOT_AVAILABLE), ("30000", ErrorCode.NONE)):
        async with api_of_a_broker({"request.timeout.ms": timeout}) as api:
            asked = MetadataRequest.MetadataRequestTopic(name="t")
            (topic,) = (await api(MetadataRequest(topics=[asked]), 9)).topics
            assert topic.error_code == code


@shows("odradek.timer.tick.ms", "odradek.timer.wheel.size")
async def test_the_timing_wheel_is_built_as_configured_and_timeouts_are_rounded_to_its_ticks() -> None:
    settings = {"odradek.timer.tick.ms": "50", "odradek.timer.wheel.size": "7"}
    async with api_of_a_broker(settings) as api, peer_of(api.broker) as peer:
        wheel = api.broker.timer.wheel
        assert (wheel.tick_ms, wheel.wheel_size) == (50, 7)
        await create(api, 1)
        begun = time.monotonic()
        peer.send(framed(fetch(1, 400)))
        assert await peer.frame() is not None
        assert time.monotonic() - begun >= 0.34  # as in Kafka, up to a tick early


@shows(
    "producer.purgatory.purge.interval.requests",
    "fetch.purgatory.purge.interval.requests",
    "delete.records.purgatory.purge.interval.requests",
)
async def test_each_purgatory_purges_at_its_own_interval() -> None:
    settings = {
        "producer.purgatory.purge.interval.requests": "11",
        "fetch.purgatory.purge.interval.requests": "3",
        "delete.records.purgatory.purge.interval.requests": "12",
    }
    async with api_of_a_broker(settings) as api:
        manager = api.broker.replica_manager
        produce_purgatory, deletions = manager.produce_purgatory, manager.delete_records_purgatory
        assert (produce_purgatory.purge_interval, deletions.purge_interval) == (11, 12)
        assert manager.fetch_purgatory.purge_interval == 3


# --- logs


@shows("log.dirs", "log.dir")
async def test_partitions_are_spread_over_all_directories_and_found_after_a_restart(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": " , ".join(map(str, directories))}
    for start in (1, 2):
        async with api_of_a_broker(settings) as api:
            if start == 1:
                await create(api, 4)
            await produced(api, 1)
            assert [sorted(path.name for path in each.glob("t-*")) for each in directories] == [
                ["t-0", "t-2"],
                ["t-1", "t-3"],
            ]
            response = await api(DescribeLogDirsRequest(topics=None), 1)
            assert {result.log_dir for result in response.results} == set(map(str, directories))
            assert log_of(api).state.log_end_offset == start
        for each in directories:
            assert (each / ".kafka_cleanshutdown").exists()
            assert "broker.id=0" in (each / "meta.properties").read_text()
    async with api_of_a_broker({"log.dir": str(directories[0])}) as api:
        response = await api(DescribeLogDirsRequest(topics=None), 1)
        assert [result.log_dir for result in response.results] == [str(directories[0])]


CHECKPOINTS = {
    "log.flush.offset.checkpoint.interval.ms": (RECOVERY_POINT, 1),
    "log.flush.start.offset.checkpoint.interval.ms": (LOG_START_OFFSET, 1),
    "replica.high.watermark.checkpoint.interval.ms": (HIGH_WATERMARK, 2),
}


@shows(*CHECKPOINTS)
@pytest.mark.parametrize("setting", CHECKPOINTS)
async def test_checkpoints_are_written_at_their_intervals(setting: str) -> None:
    name, offset = CHECKPOINTS[setting]
    others = {other: "1000000" for other in CHECKPOINTS if other != setting}
    settings: dict[str, object] = {setting: "20", **others, "log.flush.interval.messages": "1"}
    async with api_of_a_broker(settings) as api:
        await create(api, 1)
        await produced(api, 2)
        log = log_of(api)
        log.start.delete_records_before(1)
        directory = Path(log.folder.path).parent
        partition = TopicPartition("t", 0)

        def written() -> int | None:
            with contextlib.suppress(FileNotFoundError):
                return read_offsets(api.broker.files, str(directory / name)).get(partition)
            return None

        await until(lambda: written() is not None and written() == max(offset, written() or 0))
        for other, (file, _) in CHECKPOINTS.items():
            if other != setting:
                with contextlib.suppress(FileNotFoundError):
                    assert partition not in read_offsets(api.broker.files, str(directory / file))


async def producers(api: Api) -> list[int]:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    response = await api(DescribeProducersRequest(topics=[topic]), 0)
    return [one.producer_id for one in response.topics[0].partitions[0].active_producers]


@shows("producer.id.expiration.ms", "producer.id.expiration.check.interval.ms")
async def test_the_state_of_an_idle_producer_expires() -> None:
    settings = {"producer.id.expiration.ms": "3600000", "producer.id.expiration.check.interval.ms": "20"}
    async with api_of_a_broker(settings) as api:
        await create(api, 1)
        for number, age_ms in enumerate((0, 7_200_000)):
            sent: dict[str, Any] = {"producer_id": 100 + number, "producer_epoch": 0, "base_sequence": 0}
            assert (await produce(api, at_ms=now_ms() - age_ms, **sent)).error_code == ErrorCode.NONE
        assert 100 in await producers(api)
        async with asyncio.timeout(20):
            while await producers(api) != [100]:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)


@shows("odradek.max.decompressed.batch.bytes")
async def test_a_batch_that_inflates_beyond_the_limit_is_refused() -> None:
    for limit, code in (("100000", ErrorCode.MESSAGE_TOO_LARGE), ("200000", ErrorCode.NONE)):
        async with api_of_a_broker({"odradek.max.decompressed.batch.bytes": limit}) as api:
            await create(api, 1)
            assert (await produce(api, 150_000, compression=Compression.GZIP)).error_code == code


@shows("odradek.max.decompressed.request.bytes")
async def test_batches_that_inflate_beyond_the_limit_of_their_request_are_refused() -> None:
    for limit, code in (("100000", ErrorCode.MESSAGE_TOO_LARGE), ("200000", ErrorCode.NONE)):
        async with api_of_a_broker({"odradek.max.decompressed.request.bytes": limit}) as api:
            await create(api, 1)
            assert (await produce(api, 150_000, compression=Compression.GZIP)).error_code == code


@shows("log.retention.check.interval.ms")
async def test_retention_is_applied_at_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all periodic work, only the work at this interval removes old records, and none earlier."""
    jobs: list[tuple[float, Callable[[], Awaitable[None]]]] = []
    monkeypatch.setattr(Background, "every", lambda _, interval_ms, job, *__: jobs.append((interval_ms, job)))
    beside = {"log.segment.bytes": "2000", "log.retention.hours": "1", "log.retention.check.interval.ms": "7777"}
    async with topic_with("retention.ms", "log.retention.ms", None, "", beside) as api:
        log = await produced(api, 3, 1500, at_ms=now_ms() - 7_200_000)
        assert log.state.log_start_offset == 0
        (apply_retention,) = [job for interval_ms, job in jobs if interval_ms == 7777]
        await apply_retention()
        assert log.state.log_start_offset == 3


def test_each_broker_setting_that_takes_effect_has_a_test() -> None:
    topics = {synonym.name for setting in TOPIC.values() for synonym in setting.synonyms}
    working = {name for name, setting in BROKER.items() if setting.takes_effect} - topics
    assert working <= SHOWN_HERE | ELSEWHERE.keys()
    assert not SHOWN_HERE & ELSEWHERE.keys()
    for place in ELSEWHERE.values():
        file, _, test = place.partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(), place
