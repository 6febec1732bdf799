"""Group settings over a socket: limits for joining members, and what the coordinators take from the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.coordinator.runtime.runtime import RuntimeSettings
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Compression, iter_batches
from tests.broker.handlers.test_bad_requests_to_coordinators import commit_request, join_request, sync_request
from tests.broker.handlers.test_bad_requests_to_coordinators import joined as lives_alone
from tests.broker.handlers.test_offsets_api import coordinated
from tests.broker.test_broker_settings_at_work import peer_of
from tests.patience import until
from tests.wire.api import api_of_a_broker

SMALL: dict[str, object] = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
AT_ONCE = {**SMALL, "group.initial.rebalance.delay.ms": 0}


async def test_session_timeouts_are_accepted_within_the_configured_bounds() -> None:
    settings = {**AT_ONCE, "group.min.session.timeout.ms": 100, "group.max.session.timeout.ms": 200}
    async with api_of_a_broker(settings) as api:
        await coordinated(api)
        for session_ms, code in (
            (99, ErrorCode.INVALID_SESSION_TIMEOUT),
            (100, ErrorCode.NONE),
            (200, ErrorCode.NONE),
            (201, ErrorCode.INVALID_SESSION_TIMEOUT),
        ):
            answer = await api(join_request(f"g{session_ms}", session_timeout_ms=session_ms), 3)
            assert answer.error_code == code, session_ms


@pytest.mark.parametrize("size", [1, 2])
async def test_a_group_has_at_most_the_configured_number_of_members(size: int) -> None:
    async with api_of_a_broker({**AT_ONCE, "group.max.size": size}) as api, peer_of(api.broker) as peer:
        await coordinated(api)
        me = await lives_alone(api, "g")
        peer.send_request(join_request("g"), 3)
        if size == 1:
            assert (await peer.response()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            assert (await api(sync_request(me), 5)).error_code == ErrorCode.NONE
            return
        waits = api.broker.coordinators.groups.waits
        await until(lambda: waits.rebalance.delayed == 1)
        assert len((await api(join_request("g", me.member_id), 3)).members) == size


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
async def test_the_coordinators_of_a_running_broker_follow_its_settings(codec: Compression) -> None:
    settings = {
        **AT_ONCE,
        "offsets.commit.required.acks": 1,
        "offsets.commit.timeout.ms": 2345,
        "offsets.load.buffer.size": 1234,
        "offsets.topic.compression.codec": int(codec),
        "transaction.state.log.load.buffer.size": 3456,
        "transaction.max.timeout.ms": 4567,
    }
    async with api_of_a_broker(settings) as api:
        await coordinated(api, "t")
        assert (await api(commit_request("g"), 7)).topics[0].partitions[0].error_code == ErrorCode.NONE
        (partition,) = api.broker.replica_manager.partitions.of_topic(GROUP_TOPIC)
        written = (Path(partition.log.folder.path) / f"{0:020d}.log").read_bytes()
        assert [header.compression for _, header in iter_batches(written)] == [codec]
        groups, transactions = (runtime.settings for runtime in api.broker.coordinators.runtimes)
        assert groups == RuntimeSettings(GROUP_TOPIC, 1234, 2345, 1, codec)
        assert transactions[:3] == (TRANSACTION_TOPIC, 3456, 4567)
