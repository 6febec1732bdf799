"""Every broker setting marked as taking effect changes what a client or the disk of a running broker shows.

test_topic_settings_at_work.py tests the defaults of topics; settings that are times have rows in
tests/testing/virtual_time/deadlines.py. PLACES names tests of settings in other files. The last test fails for a
setting without any test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.broker.server import Broker
from odradek.broker.settings import BROKER, TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.records import Compression
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.segment.tail import ENTRY_BYTES
from odradek.testing import in_process_broker
from tests.broker.test_topic_settings_at_work import A_TIME, log_of, produce, produced
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker
from tests.wire.frames import API_VERSIONS_V0, framed, request_payload
from tests.wire.raw_client import RawClient, raw_client

TESTS = Path(__file__).parent.parent
Test = TypeVar("Test", bound=Callable[..., Any])

PLACES = {
    "broker/settings/test_config_providers.py": {
        "test_a_variable_becomes_what_its_provider_has": "config.providers",
    },
    "broker/handlers/test_topic_partitions_api.py": {
        "test_the_brokers_limit_is_the_lower_one": "max.request.partition.size.limit",
    },
    "broker/metadata_store/test_factory.py": {
        "test_a_broker_with_zookeeper_connect_shares_its_metadata": "zookeeper.connect",
        "test_a_start_waits_for_zookeeper_as_long_as_the_settings_say": "zookeeper.connection.timeout.ms",
        "test_as_many_requests_are_in_flight_as_the_settings_say": "zookeeper.max.in.flight.requests",
    },
    "broker/metadata_store/test_session_security.py": {
        "test_a_broker_logs_in_as_its_jaas_file_says": "odradek.security.auth.login.config zookeeper.set.acl",
    },
    "broker/metadata_store/test_zookeeper_tls.py": {
        "test_both_sides_show_certificates": (
            "zookeeper.clientCnxnSocket zookeeper.ssl.client.enable zookeeper.ssl.keystore.location "
            "zookeeper.ssl.keystore.password zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password"
        ),
        "test_a_type_that_fits_is_accepted": "zookeeper.ssl.keystore.type zookeeper.ssl.truststore.type",
        "test_the_versions_are_those_of_the_settings": "zookeeper.ssl.enabled.protocols zookeeper.ssl.protocol",
        "test_the_cipher_suites_are_those_of_the_settings": "zookeeper.ssl.cipher.suites",
        "test_the_name_of_the_server_is_verified_unless_the_setting_is_empty": (
            "zookeeper.ssl.endpoint.identification.algorithm"
        ),
    },
    "broker/test_tls_listeners.py": {
        "test_keys_and_certificates_may_stand_in_any_form": (
            "ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location "
            "ssl.keystore.password ssl.keystore.type ssl.truststore.certificates ssl.truststore.location "
            "ssl.truststore.password"
        ),
        "test_versions_and_suites_are_those_of_the_settings": "ssl.cipher.suites ssl.enabled.protocols",
        "test_brokers_replicate_over_tls_with_certificates_of_both_sides": "ssl.client.auth",
        "test_brokers_verify_each_others_names_unless_the_setting_is_empty": "ssl.endpoint.identification.algorithm",
    },
    "broker/settings/test_tls_settings.py": {
        "test_the_type_of_a_store_is_that_of_its_content_unless_it_is_set": "ssl.truststore.type",
    },
    "broker/test_certificate_reload.py": {
        "test_other_names_may_be_allowed": "ssl.allow.dn.changes ssl.allow.san.changes",
    },
    "broker/authorization/test_authorization_beside_kafka.py": {
        "test_every_request_is_answered_as_by_kafka": "authorizer.class.name",
    },
    "broker/test_moving_listeners.py": {
        "test_brokers_move_one_by_one_and_stay_in_sync": "odradek.other.inter.broker.listener.name",
    },
    "broker/network/test_tls_transport.py": {
        "test_mapping_rules_give_the_principal_its_name": "ssl.principal.mapping.rules",
        "test_too_many_handshakes_of_one_address_are_refused": "odradek.max.handshakes.per.ip",
    },
    "broker/settings/test_sasl_listeners.py": {
        "test_a_listener_has_its_own_mechanisms_and_each_its_own_module_and_lifetime": (
            "sasl.enabled.mechanisms sasl.server.max.receive.size"
        ),
    },
    "broker/test_sasl_mechanisms.py": {
        "test_users_of_plain_are_options_of_the_listeners_login_module": "sasl.jaas.config",
    },
    "clients/connections/test_logins.py": {
        "test_brokers_of_a_cluster_authenticate_to_each_other": "sasl.mechanism.inter.broker.protocol",
    },
    "broker/cluster/test_user_credentials.py": {
        "test_a_start_adds_the_credentials_of_the_file": "odradek.scram.credentials.file",
    },
    "broker/settings/test_settings_table.py": {
        "test_a_value_is_parsed_as_in_java": "inter.broker.protocol.version",
    },
    "broker/cluster/test_member.py": {
        "test_a_follower_fetches_as_the_settings_say": (
            "replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.max.bytes"
        ),
        "test_the_number_of_fetchers_can_be_changed": "num.replica.fetchers",
        "test_a_broker_may_stop_without_a_controlled_shutdown": "controlled.shutdown.enable",
        "test_the_last_broker_asks_as_often_as_the_settings_say_and_then_stops": "controlled.shutdown.max.retries",
    },
    "broker/controller/test_elections.py": {
        "test_the_balance_may_be_disabled": "auto.leader.rebalance.enable",
        "test_a_small_imbalance_stays_and_so_does_one_during_a_reassignment": "leader.imbalance.per.broker.percentage",
    },
    "broker/handlers/test_metadata_api.py": {
        "test_the_broker_can_forbid_creation": "auto.create.topics.enable",
        "test_created_topics_have_the_brokers_default_counts": "num.partitions",
        "test_a_topic_that_cannot_be_created_returns_the_reason": "default.replication.factor",
    },
    "broker/handlers/test_topics_api.py": {
        "test_deletion_can_be_switched_off": "delete.topic.enable",
    },
    "broker/replica/test_over_sockets.py": {
        "test_the_brokers_own_limit_bounds_a_fetch": "fetch.max.bytes",
        "test_the_number_of_sessions_is_a_setting": "max.incremental.fetch.session.cache.slots",
    },
    "broker/handlers/test_transactional_log_api.py": {
        "test_without_verification_a_late_batch_hangs_until_an_administrator_ends_its_transaction": (
            "transaction.partition.verification.enable"
        ),
    },
    "broker/test_server.py": {
        "test_the_directory_of_another_cluster_or_broker_is_refused": "broker.id",
        "test_each_listener_returns_its_own_advertised_address": (
            "listeners advertised.listeners listener.security.protocol.map"
        ),
    },
    "broker/settings/test_config.py": {
        "test_node_id_and_broker_id_are_synonyms": "node.id",
        "test_settings_that_contradict_each_other_are_refused": "broker.id.generation.enable",
    },
    "broker/settings/test_settings_in_effect.py": {
        "test_a_node_without_an_id_gets_the_next_one_above_the_reserved_ids": "reserved.broker.max.id",
        "test_socket_buffers_have_the_configured_size": "socket.receive.buffer.bytes socket.send.buffer.bytes",
    },
    "broker/settings/test_listeners.py": {
        "test_a_kraft_controllers_listener_stays_closed": "process.roles controller.listener.names",
        "test_invalid_listeners_are_refused": "inter.broker.listener.name security.inter.broker.protocol",
    },
    "broker/handlers/test_features.py": {
        "test_a_new_cluster_begins_with_the_levels_that_its_settings_choose": "odradek.initial.features",
    },
    "broker/handlers/test_releases.py": {
        "test_a_broker_lists_what_the_release_served": "odradek.as.version",
    },
    "broker/console/test_api.py": {
        "test_the_console_can_be_switched_off": "odradek.console.enable",
    },
    "scenarios/test_hostile_metrics_clients.py": {
        "test_other_host_names_can_be_allowed": "odradek.metrics.allowed.hosts",
    },
    "broker/metrics/test_metrics.py": {
        "test_metrics_are_served_on_loopback_by_default": "odradek.metrics.host",
        "test_health_is_200_while_clients_are_served": "odradek.metrics.port",
    },
    "scenarios/test_hostile_frames.py": {
        "test_only_a_produce_may_be_as_long_as_the_socket_allows": "odradek.max.request.bytes",
        "test_unfinished_frames_share_one_bound_and_other_clients_continue": "queued.max.request.bytes",
    },
    "scenarios/test_hostile_admin_requests.py": {
        "test_a_response_that_would_be_too_large_is_refused_before_it_is_built": "odradek.max.response.bytes",
    },
    "scenarios/test_hostile_logins.py": {
        "test_the_frames_of_all_strangers_share_a_small_bound": "odradek.max.queued.bytes.before.login",
    },
    "broker/network/test_connection.py": {
        "test_many_clients_that_do_not_read_are_closed_before_their_responses_fill_the_memory": (
            "odradek.max.unread.bytes"
        ),
        "test_too_many_unread_response_bytes_close_the_connection": "odradek.max.unread.bytes.per.connection",
        "test_more_than_the_bounded_bytes_in_flight_is_not_handled": "odradek.max.in.flight.bytes.per.connection",
    },
    "broker/cleaning/test_log_cleaner.py": {
        "test_without_the_cleaner_nothing_is_cleaned": "log.cleaner.enable",
        "test_cleaners_do_not_exceed_the_bytes_per_second": "log.cleaner.io.max.bytes.per.second",
        "test_all_cleaners_together_use_the_configured_memory_for_keys_and_buffers": (
            "log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size"
        ),
        "test_cleaners_share_the_throttle_and_their_number_follows_the_setting": "log.cleaner.threads",
    },
    "broker/coordinator/test_internal_topics.py": {
        "test_the_runtimes_follow_the_settings": (
            "offsets.commit.required.acks offsets.load.buffer.size offsets.topic.compression.codec "
            "transaction.state.log.load.buffer.size"
        ),
        "test_the_topics_are_created_as_kafka_creates_them": (
            "offsets.topic.num.partitions offsets.topic.segment.bytes transaction.state.log.min.isr "
            "transaction.state.log.segment.bytes"
        ),
        "test_the_first_find_coordinator_creates_the_topic_and_a_retry_finds_the_coordinator": (
            "transaction.state.log.num.partitions"
        ),
        "test_a_replication_factor_above_the_number_of_brokers_makes_the_coordinator_unavailable": (
            "offsets.topic.replication.factor transaction.state.log.replication.factor"
        ),
    },
    "broker/handlers/test_group_settings.py": {
        "test_a_group_has_at_most_the_configured_number_of_members": "group.max.size",
    },
    "broker/handlers/test_group_migration_api.py": {
        "test_the_policy_says_whether_a_group_changes_its_protocol": "group.consumer.migration.policy",
    },
    "broker/handlers/test_consumer_groups_api.py": {
        "test_the_first_assignor_is_that_of_groups_whose_members_want_none": "group.consumer.assignors",
        "test_a_group_has_at_most_the_configured_number_of_members": "group.consumer.max.size",
        "test_the_protocol_may_be_off": "group.coordinator.rebalance.protocols",
    },
    "broker/handlers/test_telemetry_api.py": {
        "test_a_broker_that_is_told_to_lists_both": "odradek.client.metrics.enable",
        "test_series_beyond_the_setting_are_dropped_and_counted": "odradek.client.metrics.max.series",
        "test_the_limit_of_a_push_is_a_setting": "telemetry.max.bytes",
    },
    "broker/handlers/test_offsets_api.py": {
        "test_the_maximum_length_of_offset_metadata_is_a_setting": "offset.metadata.max.bytes",
    },
    "broker/handlers/test_log_dirs_api.py": {
        "test_at_most_the_configured_number_of_replicas_moves_at_a_time": "num.replica.alter.log.dirs.threads",
    },
    "broker/test_throttled_reassignments.py": {
        "test_the_windows_of_the_quotas_are_settings": "replication.quota.window.num",
    },
    "broker/replica/test_partition.py": {
        "test_acks_all_needs_the_minimum_of_in_sync_replicas": "min.insync.replicas",
    },
}
"""The settings that each test elsewhere shows, by its file."""
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


@shows("odradek.timer.wheel.size")
async def test_the_timing_wheel_is_built_as_configured() -> None:
    async with in_process_broker({"odradek.timer.wheel.size": "7"}) as broker:
        assert broker.timer.wheel.wheel_size == 7


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


def test_each_broker_setting_that_takes_effect_has_a_test() -> None:
    topics = {synonym.name for setting in TOPIC.values() for synonym in setting.synonyms}
    working = {name for name, setting in BROKER.items() if setting.takes_effect} - topics
    elsewhere = {name for tests in PLACES.values() for names in tests.values() for name in names.split()}
    assert {name for name in working if not A_TIME.search(name)} <= SHOWN_HERE | elsewhere
    assert not SHOWN_HERE & elsewhere
    for file, tests in PLACES.items():
        text = (TESTS / file).read_text()
        assert [test for test in tests if f"def {test}(" not in text] == [], file
