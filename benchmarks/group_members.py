"""Group members of both protocols, each on its own connection: they join, send heartbeats and leave."""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from typing import TypeVar
from uuid import UUID, uuid4

from benchmarks import wire
from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import ResponseHeader, response_header_version
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.schema import Message

R = TypeVar("R", bound=Message)
JOIN, SYNC, HEARTBEAT, LEAVE = 5, 3, 3, 3
CONSUMER_HEARTBEAT = 1
SESSION_MS, REBALANCE_MS = 45_000, 60_000
JOINS, LEAVES = 0, -1
"""Epochs of heartbeats of the consumer protocol."""


class Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, frame: bytes) -> bytes:
        """Sends a framed request; returns its response without the length."""
        self.writer.write(frame)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def call(self, request: Message, response: type[R], version: int) -> R:
        return decoded(await self.send(wire.framed(request, version)), response, version)


def decoded(answer: bytes, response: type[R], version: int) -> R:
    key = response.__schema__.api_key
    assert key is not None
    _, position = read(ResponseHeader, response_header_version(key, version), answer)
    return decode(response, version, answer, position)


def expect(error_code: int, *others: ErrorCode) -> None:
    if error_code and error_code not in others:
        raise RuntimeError(f"the broker returned {ErrorCode.of(error_code).name}")


class GroupMember(ABC):
    """A member, which takes part again whenever its group rebalances."""

    heartbeat_s: float
    """How often Kafka's clients send a heartbeat by default."""
    commit_version: int

    def __init__(self, client: Client, group: str) -> None:
        self.client, self.group = client, group
        self.member_id, self.generation = "", -1
        """The generation, or the member's epoch."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether it has what it has once all members have joined."""

    @abstractmethod
    async def join(self) -> None:
        """Joins the group."""

    @abstractmethod
    async def heartbeat(self) -> None:
        """Sends a heartbeat, and does what its answer demands."""

    @abstractmethod
    def leave_frame(self) -> bytes: ...

    @abstractmethod
    async def leave(self, frame: bytes) -> None: ...

    def commit_frame(self, topic: str, topic_id: UUID, partitions: int) -> bytes:
        """A commit of this topic, by its name and its id: each version encodes one of them."""
        each = OffsetCommitRequest.OffsetCommitRequestPartition
        offsets = [
            each(partition_index=p, committed_offset=1_000_000 + p, committed_metadata="") for p in range(partitions)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=offsets)],
        )
        return wire.framed(request, self.commit_version)


class ClassicMember(GroupMember):
    """A member of a group in which all of `size` members have joined once it is settled."""

    heartbeat_s = 3.0
    commit_version = 7

    def __init__(self, client: Client, group: str, size: int) -> None:
        super().__init__(client, group)
        self._size = size
        self._companions = 0
        """The number of members of its generation; 0 until it has its assignment."""
        self._beating, self._frame = -1, b""

    @property
    def is_settled(self) -> bool:
        return self._companions == self._size

    async def join(self) -> None:
        """Joins and waits for the assignment."""
        self._companions = 0
        while not self._companions:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(40))],
            )
            answer = await self.client.call(request, JoinGroupResponse, JOIN)
            self.member_id = answer.member_id
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            expect(answer.error_code)
            self.generation = answer.generation_id
            await self._sync([member.member_id for member in answer.members])

    async def _sync(self, members: list[str]) -> None:
        """`members` are those of the leader, which assigns something to each; else it is empty."""
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                assignment(member_id=member, assignment=struct.pack(">i", len(members)) * 10) for member in members
            ],
        )
        answer = await self.client.call(request, SyncGroupResponse, SYNC)
        if answer.error_code:
            expect(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            (self._companions,) = struct.unpack_from(">i", answer.assignment)

    async def heartbeat(self) -> None:
        """Cheap: the bytes are reused within a generation, and only the response's error code is read."""
        if self._beating != self.generation:
            request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            self._beating, self._frame = self.generation, wire.framed(request, HEARTBEAT)
        (error_code,) = struct.unpack_from(">h", await self.client.send(self._frame), 8)
        if error_code:
            expect(error_code, ErrorCode.REBALANCE_IN_PROGRESS)
            await self.join()

    def leave_frame(self) -> bytes:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=None)
        return wire.framed(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE)

    async def leave(self, frame: bytes) -> None:
        (error_code,) = struct.unpack_from(">h", await self.client.send(frame), 8)
        expect(error_code)


class ConsumerMember(GroupMember):
    """A member of the consumer protocol (KIP-848), which has `share` partitions of the topic once it is settled."""

    heartbeat_s = 5.0
    commit_version = 10

    def __init__(self, client: Client, group: str, topic: str, share: int) -> None:
        super().__init__(client, group)
        self._topic, self._share = topic, share
        self.member_id = str(uuid4())
        self._owned: list[ConsumerGroupHeartbeatRequest.TopicPartitions] = []
        self._frame, self._nothing_new = b"", b""

    @property
    def is_settled(self) -> bool:
        return sum(len(each.partitions) for each in self._owned) == self._share

    async def join(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=JOINS,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=[],
        )
        self._owned = []
        self._frame = wire.framed(request, CONSUMER_HEARTBEAT)
        await self.heartbeat()

    async def heartbeat(self) -> None:
        """Cheap while nothing changes: the bytes of the request are used again, and the answer is the one before."""
        answer = await self.client.send(self._frame)
        while answer != self._nothing_new:
            response = decoded(answer, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT)
            expect(response.error_code)
            self.generation = response.member_epoch
            self._frame = self._heartbeat_frame()
            if response.assignment is None:
                self._nothing_new = answer
                return
            owned = ConsumerGroupHeartbeatRequest.TopicPartitions
            self._owned = [
                owned(topic_id=each.topic_id, partitions=each.partitions)
                for each in response.assignment.topic_partitions
            ]
            answer = await self.client.send(self._heartbeat_frame(self._owned))

    def _heartbeat_frame(
        self,
        owned: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None,
        epoch: int | None = None,
    ) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation if epoch is None else epoch,
            topic_partitions=owned,
        )
        return wire.framed(request, CONSUMER_HEARTBEAT)

    def leave_frame(self) -> bytes:
        return self._heartbeat_frame(epoch=LEAVES)

    async def leave(self, frame: bytes) -> None:
        expect(decoded(await self.client.send(frame), ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT).error_code)
