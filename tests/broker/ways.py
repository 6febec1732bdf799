"""Prints which files a request passes, in the order in which they are entered.

    python -m tests.broker.ways [WAY ...]

`sys.setprofile` sees the calls of plain Python, so compiled modules run from their sources (ODRADEK_PURE=1 is set). A
way is traced on a broker in this process, from the first byte of the request to the last one of its response, several
times: what happens to run beside it is not in all of the traces. Code that `protocol` generates counts as one file.

    produce    acks=all: waits until a follower, which is a client of the test, has fetched the batch
    fetch      of a consumer without a session: waits for min_bytes until another client has produced
    join       the first JoinGroup of a group: waits for group.initial.rebalance.delay.ms
    heartbeat  of a member of a consumer group, which changes nothing, like the one before
    login      by SCRAM, after the TLS handshake
    create     CreateTopics that the controller only validates: what it does for all brokers is not traced

Without an authorizer. What another client's request does before it wakes the one that waits is not traced.
"""

from __future__ import annotations

import os

os.environ["ODRADEK_PURE"] = "1"

import tests.conftest  # noqa: F401, I001 - before anything imports a compiled module

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType

from odradek.broker import periodic_work
from odradek.broker.background import background
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.server import Broker
from odradek.testing import InProcessBroker, in_process_broker
from odradek.broker.security.sasl.client import tokens as scram_tokens
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.groups import JoinGroupRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.base_requests import small_batch
from tests.wire.frames import request_bytes
from tests.wire.raw_client import RawClient, raw_client

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "protocol: generated code"
TOPIC = "way"
PRODUCE_VERSION, FETCH_VERSION, JOIN_VERSION, FIND_VERSION, CREATE_VERSION = 9, 12, 5, 2, 5
HEARTBEAT_VERSION = 1
FOLLOWER = 7
NUMBERS = count()
SUBSCRIPTION = bytes(6) + b"\xff" * 4
"""Of version 0, to no topics."""
PERIODIC = (background.__file__, periodic_work.__file__)
TIMES = 3
WAIT_MS = 100
PARKED_S = 0.05


class Trace:
    """The files whose functions are called on this thread while it is entered; with `since`, from the first call of a
    function of that name. Periodic work of the broker does not count.
    """

    def __init__(self, since: str | None = None) -> None:
        self.files: dict[str, None] = {}
        self._since = since
        self._periodic: FrameType | None = None

    def __enter__(self) -> Trace:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._periodic is not None:
            if event == "return" and frame is self._periodic:
                self._periodic = None
        elif event == "call":
            if frame.f_code.co_filename in PERIODIC:
                self._periodic = frame
            elif self._since is None or frame.f_code.co_name == self._since:
                self._since = None
                place = _place(frame.f_code.co_filename)
                if place is not None:
                    self.files[place] = None


def _place(file_name: str) -> str | None:
    """Returns a file relative to the project, None if it is elsewhere, of the tests or of the test kit."""
    if file_name.startswith("<") and " v" in file_name:
        return GENERATED
    path = Path(file_name)
    if not path.is_absolute() or not path.resolve().is_relative_to(ROOT):
        return None
    name = str(path.resolve().relative_to(ROOT))
    return None if "site-packages" in name or name.startswith(("tests/", "testing/")) else name


async def produce(broker: Broker, client: RawClient, other: RawClient) -> Trace:
    partition = broker.replica_manager.partitions.find(TopicPartition(TOPIC, 0))
    if FOLLOWER not in partition.replicas:
        both = (broker.broker_id, FOLLOWER)
        partition.make_leader(PartitionState(0, broker.broker_id, partition.leader_epoch + 1, both, both))
    followed = _fetch(partition.log.state.log_end_offset + 1, 0)
    followed.replica_id = FOLLOWER
    return await _woken(client, (_produce(), PRODUCE_VERSION), other, (followed, FETCH_VERSION))


async def fetch(broker: Broker, client: RawClient, other: RawClient) -> Trace:
    end = broker.replica_manager.partitions.find(TopicPartition(TOPIC, 0)).log.state.log_end_offset
    return await _woken(client, (_fetch(end, 10_000), FETCH_VERSION), other, (_produce(), PRODUCE_VERSION))


async def _woken(
    client: RawClient, request: tuple[Message, int], other: RawClient, waking: tuple[Message, int]
) -> Trace:
    """Traces a request that waits until another client sends one that wakes it."""
    with Trace() as trace:
        client.send(request_bytes(*request))
        await asyncio.sleep(PARKED_S)
    with Trace(since="drain") as rest:
        other.send(request_bytes(*waking))
        assert await client.frame()
    await other.frame()
    trace.files |= rest.files
    return trace


async def join(_broker: Broker, client: RawClient, _other: RawClient) -> Trace:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    request = JoinGroupRequest(
        group_id=f"group-{next(NUMBERS)}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    while not request.member_id:  # the coordinator loads
        request.member_id = (await client.call(request, JOIN_VERSION)).member_id
        await asyncio.sleep(PARKED_S)
    with Trace() as trace:
        joined = await client.call(request, JOIN_VERSION)
    assert joined.generation_id == 1
    return trace


async def heartbeat(_broker: Broker, client: RawClient, _other: RawClient) -> Trace:
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"group-{next(NUMBERS)}",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    while request.member_epoch == 0:  # the coordinator loads
        request.member_epoch = (await client.call(request, HEARTBEAT_VERSION)).member_epoch
        await asyncio.sleep(PARKED_S)
    request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = -1, None, None
    await client.call(request, HEARTBEAT_VERSION)
    with Trace() as trace:
        beat = await client.call(request, HEARTBEAT_VERSION)
    assert (beat.error_code, beat.member_epoch) == (0, request.member_epoch)
    return trace


async def login(broker: InProcessBroker) -> Trace:
    credentials, tls = broker.security.credentials_of(None), broker.security.of_client().tls
    assert credentials is not None
    tokens = scram_tokens(credentials, b"nonce")
    trace = Trace()
    async with raw_client(int(broker.bootstrap.rpartition(":")[2]), ssl=tls) as client:
        await asyncio.sleep(PARKED_S)  # the broker ends the TLS handshake
        with trace:
            assert not (await client.handshake(credentials.mechanism)).error_code
        answer = None
        with suppress(StopIteration):
            while True:
                token = next(tokens) if answer is None else tokens.send(answer.auth_bytes)
                with trace:
                    answer = await client.token(token)
    return trace


async def create(_broker: Broker, client: RawClient, _other: RawClient) -> Trace:
    topic = CreateTopicsRequest.CreatableTopic(name=f"topic-{next(NUMBERS)}", num_partitions=1, replication_factor=1)
    with Trace() as trace:
        created = await client.call(CreateTopicsRequest(topics=[topic], validate_only=True), CREATE_VERSION)
    assert created.topics[0].error_code == 0
    return trace


WAYS: dict[str, Callable[[Broker, RawClient, RawClient], Awaitable[Trace]]] = {
    "produce": produce,
    "fetch": fetch,
    "join": join,
    "heartbeat": heartbeat,
    "create": create,
}


def _produce() -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=small_batch())
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def _fetch(offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


async def traced(way: str) -> list[str]:
    """Returns the files that every one of the requests has passed."""
    settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": WAIT_MS}
    if way == "login":
        async with in_process_broker(security="SASL_SSL") as broker:
            return _of_all([await login(broker) for _ in range(1 + TIMES)][1:])
    async with in_process_broker(settings) as broker:
        await broker.links.active_controller.create_topics([NewTopic(TOPIC, 1, 1)], 10_000)
        port = int(broker.bootstrap.rpartition(":")[2])
        async with raw_client(port) as client, raw_client(port) as other:
            await client.call(_produce(), PRODUCE_VERSION)
            await client.call(FindCoordinatorRequest(key="group"), FIND_VERSION)  # creates the internal topic
            await WAYS[way](broker, client, other)  # makes what is made once
            traces = [await WAYS[way](broker, client, other) for _ in range(TIMES)]
    return _of_all(traces)


def _of_all(traces: list[Trace]) -> list[str]:
    return [name for name in traces[0].files if all(name in trace.files for trace in traces)]


def main() -> None:
    for way in sys.argv[1:] or [*WAYS, "login"]:
        files = asyncio.run(traced(way))
        of_broker = sum(name.startswith("broker/") for name in files)
        print(f"{way}: {of_broker} files of broker/, {len(files)} in all")
        for name in files:
            print(f"    {name}")


if __name__ == "__main__":
    main()
