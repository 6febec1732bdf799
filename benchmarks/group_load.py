"""A client with many group members, each on its own connection, in one small process.

    python -m benchmarks.group_load members PORT GROUPS MEMBERS
    python -m benchmarks.group_load commits PORT MEMBERS PARTITIONS COMMITS

members: MEMBERS join each of GROUPS groups at once. Prints {"stable_ms": ...} when every group is stable with all
members. Then each sends a heartbeat every HEARTBEAT_S ({"calm": 1} once all do), until a line arrives on stdin. Then
all leave, and {"left_ms": ...} is printed when all have received their responses.

commits: MEMBERS groups of one member each commit offsets of PARTITIONS partitions, one commit after the other, COMMITS
in total. Prints {"measuring": 1} after a warm-up of a tenth as many, and {"commits": ..., "seconds": ...}.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import TypeVar

from benchmarks import wire
from benchmarks.parked import raise_open_files
from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import ResponseHeader, response_header_version
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from odradek.protocol.schema import Message

R = TypeVar("R", bound=Message)
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FIND = 5, 3, 3, 3, 7, 2
HEARTBEAT_S = 3.0
"""The default of Kafka's clients."""
EAGER_HEARTBEAT_S = 0.25
"""Until all groups are stable, so that a long interval does not hide the broker's time."""
SESSION_MS, REBALANCE_MS = 45_000, 60_000
TOPIC = "committed"


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
        key = request.__schema__.api_key
        assert key is not None
        answer = await self.send(wire.framed(request, version))
        _, position = read(ResponseHeader, response_header_version(key, version), answer)
        return decode(response, version, answer, position)


class Member:
    """A group member, which rejoins whenever its group rebalances."""

    def __init__(self, client: Client, group: str) -> None:
        self.client, self.group = client, group
        self.member_id, self.generation = "", -1
        self.companions = 0
        """The number of members of its generation; 0 until it has its assignment."""
        self.beating, self.frame = -1, b""

    async def join(self) -> None:
        """Joins and waits for the assignment."""
        self.companions = 0
        while not self.companions:
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
            (self.companions,) = struct.unpack_from(">i", answer.assignment)

    def heartbeat_frame(self) -> bytes:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return wire.framed(request, HEARTBEAT)

    async def heartbeat(self) -> None:
        """Cheap: the bytes are reused within a generation, and only the response's error code is read."""
        if self.beating != self.generation:
            self.beating, self.frame = self.generation, self.heartbeat_frame()
        (error_code,) = struct.unpack_from(">h", await self.client.send(self.frame), 8)
        if error_code:
            expect(error_code, ErrorCode.REBALANCE_IN_PROGRESS)
            await self.join()

    def leave_frame(self) -> bytes:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=None)
        return wire.framed(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE)

    async def leave(self, frame: bytes) -> None:
        (error_code,) = struct.unpack_from(">h", await self.client.send(frame), 8)
        expect(error_code)


def expect(error_code: int, *others: ErrorCode) -> None:
    if error_code and error_code not in others:
        raise RuntimeError(f"the broker returned {ErrorCode.of(error_code).name}")


def until_coordinator(port: int) -> None:
    """Makes the broker create its internal topic, and waits until it serves groups."""
    for _ in range(600):
        request = FindCoordinatorRequest(key="any", key_type=0)
        if not wire.call(port, request, FindCoordinatorResponse, FIND).error_code:
            heartbeat = HeartbeatRequest(group_id="any", generation_id=1, member_id="nobody")
            answer = wire.call(port, heartbeat, HeartbeatResponse, HEARTBEAT)
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                return
        time.sleep(0.05)
    raise TimeoutError("no group coordinator")


class Crowd:
    """Active members: they join, then send a heartbeat every `pause_s`.

    `is_stable` is set once all have the assignment of a generation of `size`, `is_calm` once all pause for HEARTBEAT_S.
    """

    def __init__(self, members: list[Member], size: int) -> None:
        self.size, self.pause_s = size, EAGER_HEARTBEAT_S
        self.is_stable, self.is_calm = asyncio.Event(), asyncio.Event()
        self._unstable, self._eager = set(members), set(members)
        self._leaving = asyncio.Event()
        parts = [number / len(members) for number in range(len(members))]
        self._lives = [asyncio.create_task(self._live(*pair)) for pair in zip(members, parts, strict=True)]

    async def _live(self, member: Member, part: float) -> None:
        """The first pause is a fraction, so that the heartbeats are spread."""
        await member.join()
        while not self._leaving.is_set():
            self._look_at(member)
            await asyncio.sleep(self.pause_s * part)
            part = 1.0
            await member.heartbeat()

    def _look_at(self, member: Member) -> None:
        (self._unstable.discard if member.companions == self.size else self._unstable.add)(member)
        if not self._unstable:
            self.is_stable.set()
        if self.pause_s == HEARTBEAT_S:
            self._eager.discard(member)
            if not self._eager:
                self.is_calm.set()

    async def until(self, event: asyncio.Event) -> None:
        """Waits for the event. Raises the exception of a member that fails meanwhile."""
        waiting = asyncio.create_task(event.wait())
        done, _ = await asyncio.wait([waiting, *self._lives], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def end(self) -> None:
        """Waits for the last heartbeats. Raises the exception of a member that failed."""
        self._leaving.set()
        await asyncio.gather(*self._lives)


async def members(port: int, groups: int, size: int) -> None:
    everyone = [Member(await Client.connect(port), f"group-{number % groups}") for number in range(groups * size)]
    begin = time.perf_counter()
    crowd = Crowd(everyone, size)
    await crowd.until(crowd.is_stable)
    report(stable_ms=(time.perf_counter() - begin) * 1000)
    crowd.pause_s = HEARTBEAT_S
    await crowd.until(crowd.is_calm)
    report(calm=1)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await crowd.end()
    frames = [member.leave_frame() for member in everyone]
    begin = time.perf_counter()
    await asyncio.gather(*(member.leave(frame) for member, frame in zip(everyone, frames, strict=True)))
    report(left_ms=(time.perf_counter() - begin) * 1000)


async def commits(port: int, size: int, partitions: int, count: int) -> None:
    everyone = [Member(await Client.connect(port), f"committing-{number}") for number in range(size)]
    for member in everyone:
        await member.join()
    frames = [commit_frame(member, partitions) for member in everyone]
    await commit(everyone, frames, count // 10)
    report(measuring=1)
    begin = time.perf_counter()
    await commit(everyone, frames, count)
    report(commits=count, seconds=time.perf_counter() - begin)


def commit_frame(member: Member, partitions: int) -> bytes:
    each = OffsetCommitRequest.OffsetCommitRequestPartition
    offsets = [
        each(partition_index=p, committed_offset=1_000_000 + p, committed_metadata="") for p in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)],
    )
    return wire.framed(request, COMMIT)


async def commit(everyone: list[Member], frames: list[bytes], count: int) -> None:
    left = count

    async def one(member: Member, frame: bytes) -> None:
        nonlocal left
        first = None
        while left > 0:
            left -= 1
            answer = await member.client.send(frame)
            if first is None:
                expect_all_committed(answer)
                first = answer
            elif answer != first:
                raise RuntimeError("a commit got a different response")

    await asyncio.gather(*(one(member, frame) for member, frame in zip(everyone, frames, strict=True)))


def expect_all_committed(answer: bytes) -> None:
    response = decode(OffsetCommitResponse, COMMIT, answer, 4)
    for topic in response.topics:
        for partition in topic.partitions:
            expect(partition.error_code)


def report(**values: float) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    what, port, *sizes = sys.argv[1], *map(int, sys.argv[2:])
    raise_open_files()
    until_coordinator(port)
    if what == "members":
        asyncio.run(members(port, *sizes))
    else:
        asyncio.run(commits(port, *sizes))


if __name__ == "__main__":
    main()
